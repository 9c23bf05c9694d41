"""Lines of files: what counts as a line, every format, and what can't be read."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import sys
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from streamfreq.errors import ConfigError, DataRefused
from streamfreq.sources import readers
from streamfreq.sources.readers import check_readable, open_lines

LINES = st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b" ")), max_size=40)


def read(path: Path) -> list[bytes]:
    chunks = list(open_lines(str(path)))
    assert all(chunks), "no chunk is empty"
    return [line for chunk in chunks for line in chunk]


def write(folder: Path, data: bytes, ending: str) -> Path:
    path = folder / f"file{ending}"
    if ending.endswith(".gz"):
        data = gzip.compress(data)
    elif ending.endswith(".zst"):
        data = zstandard.ZstdCompressor(write_checksum=True).compress(data)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("ending", [".txt", ".jsonl.gz", ".zst"])
@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"one", [b"one"]),
        (b"one\n", [b"one"]),
        (b"one\n\n\nfour\n", [b"one", b"", b"", b"four"]),
        (b"dos\r\nlines\r\n", [b"dos", b"lines"]),
        (b"a\rb\nc", [b"a\rb", b"c"]),
        (b"\xef\xbb\xbfmarked\n\xef\xbb\xbfnot here\n", [b"marked", b"\xef\xbb\xbfnot here"]),
        ("é\x85\u2028é\n".encode(), ["é\x85\u2028é".encode()]),
    ],
)
def test_what_a_line_is(tmp_path: Path, ending: str, data: bytes, lines: list[bytes]) -> None:
    assert read(write(tmp_path, data, ending)) == lines


@settings(max_examples=60, deadline=None)
@given(lines=LINES, size=st.integers(1, 40), ending=st.sampled_from([".txt", ".gz", ".zst"]))
def test_the_chunks_do_not_matter(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], size: int, ending: str
) -> None:
    path = write(tmp_path_factory.mktemp("lines"), b"".join(b"%s\n" % x for x in lines), ending)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_PLAIN_CHUNK", size)
        patch.setattr(readers, "_COMPRESSED_CHUNK", size)
        got = read(path)
    plain = path.read_bytes() if ending == ".txt" else b"".join(b"%s\n" % x for x in lines)
    wanted = plain.removeprefix(b"\xef\xbb\xbf") if size >= 3 or ending != ".txt" else plain
    if size >= 3:
        assert got == [x.removesuffix(b"\r") for x in wanted.split(b"\n")[:-1]]
    assert len(got) == len(lines)


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_files_of_several_members(tmp_path: Path, ending: str) -> None:
    first = write(tmp_path, b"a\nb", ending).read_bytes()
    second = write(tmp_path, b"c\nd\n", ending).read_bytes()
    path = tmp_path / f"both{ending}"
    path.write_bytes(first + second)
    assert read(path) == [b"a", b"bc", b"d"]
    if ending == ".gz":
        path.write_bytes(first + second + b"\0" * 512)
        assert read(path) == [b"a", b"bc", b"d"]


@pytest.mark.parametrize("ending", [".gz", ".zst"])
@pytest.mark.parametrize("damage", ["cut", "changed", "other"])
def test_damage_is_refused_by_name(tmp_path: Path, ending: str, damage: str) -> None:
    data = "".join(f"line {row} {row * row}\n" for row in range(5_000)).encode()
    path = write(tmp_path, data, ending)
    whole = path.read_bytes()
    damaged = {
        "cut": whole[:-7],
        "changed": whole[:200] + bytes(byte ^ 0xFF for byte in whole[200:260]) + whole[260:],
        "other": b"this is plain text\n" * 10,
    }
    path.write_bytes(damaged[damage])
    with pytest.raises(DataRefused, match=path.name) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_progress_is_told_in_bytes_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, b"some text\n" * 200_000, ".gz")
    told: list[int] = []
    lines = sum(map(len, open_lines(str(path), told.append)))
    assert lines == 200_000
    assert sum(told) == path.stat().st_size


def test_a_missing_file_a_folder_and_a_closed_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.txt"):
        list(open_lines(str(tmp_path / "none.txt")))
    with pytest.raises(ConfigError, match=r"none\.txt: there is no such file"):
        check_readable(str(tmp_path / "none.txt"))
    with pytest.raises(ConfigError, match="is a folder"):
        check_readable(str(tmp_path))


def test_stdin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = write(tmp_path, b"a\nb\n", ".txt")
    with path.open("rb") as file:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
        assert list(open_lines("-")) == [[b"a", b"b"]]
        assert not file.closed


def test_a_very_long_line_takes_no_quadratic_time(tmp_path: Path) -> None:
    line = b"x" * (64 << 20)
    path = write(tmp_path, line + b"\nshort\n", ".txt")
    assert list(map(len, read(path))) == [len(line), 5]


class TestParquet:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        table = pyarrow.table(
            {
                "text": ["a é", None, "c"],
                "when": [dt.datetime(2024, 1, row, tzinfo=dt.UTC) for row in (1, 2, 3)],
                "raw": [b"\xff", b"x", b"y"],
            }
        )
        path = tmp_path / "rows.parquet"
        parquet.write_table(table, path, row_group_size=2)
        return path

    def test_rows_are_json_objects(self, path: Path) -> None:
        rows = [json.loads(line) for line in read(path)]
        assert rows[0] == {"text": "a é", "when": "2024-01-01T00:00:00+00:00", "raw": "\ufffd"}
        assert [row["text"] for row in rows] == ["a é", None, "c"]

    def test_only_the_columns_that_are_wanted(self, path: Path) -> None:
        told: list[int] = []
        chunks = list(open_lines(str(path), told.append, ["text"]))
        assert json.loads(chunks[0][0]) == {"text": "a é"}
        assert sum(told) > 0

    def test_a_missing_column_is_named_with_those_there_are(self, path: Path) -> None:
        with pytest.raises(ConfigError, match=r"no column 'body'; it has text, when, raw"):
            list(open_lines(str(path), columns=["body"]))

    def test_what_is_no_parquet_is_refused(self, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow")
        path = tmp_path / "fake.parquet"
        path.write_bytes(b"not a table at all")
        with pytest.raises(DataRefused, match=r"fake\.parquet"):
            read(path)

    def test_without_the_extra_it_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "rows.parquet"
        path.touch()
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
        with pytest.raises(ConfigError, match=r"streamfreq\[parquet\]"):
            check_readable(str(path))
