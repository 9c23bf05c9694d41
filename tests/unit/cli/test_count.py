"""`streamfreq count` against plain counting, in every format it reads."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from pathlib import Path

import pytest
import zstandard

from streamfreq.codec import decode_snapshot
from streamfreq.records import TopicPartition
from tests.unit.cli.samples import HOUR_MS, invoke, json_lines, run_process

TEXTS = ["the cat sat on the mat", "the dog", "", "a cat and a dog", "the end"] * 7
WORDS = Counter(word for text in TEXTS for word in text.split())


def counts(result) -> dict[str, float]:
    """The plain counts that --json gives, by token."""
    assert result.exit_code == 0, result.output
    (counted,) = json_lines(result)
    return {row["token"]: row["horizons"][-1]["count"] for row in counted["top"]}


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(TEXTS))
    return path


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    """JSON lines, one text an hour."""
    path = tmp_path / "timed.jsonl"
    rows = [{"ts": hour * HOUR_MS, "text": text} for hour, text in enumerate(TEXTS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def decayed(word: str, half_life_ms: float, as_of_ms: float) -> float:
    """The plain sum over records."""
    return sum(
        text.split().count(word) * 2 ** (-(as_of_ms - hour * HOUR_MS) / half_life_ms)
        for hour, text in enumerate(TEXTS)
    )


def test_plain_text(lines: Path) -> None:
    assert counts(invoke("count", lines, "--json")) == WORDS


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_compressed(lines: Path, ending: str) -> None:
    path = lines.with_name(lines.name + ending)
    plain = lines.read_bytes()
    path.write_bytes(gzip.compress(plain) if ending == ".gz" else zstandard.compress(plain))
    assert counts(invoke("count", path, "--json")) == WORDS


def test_json_lines(timed: Path) -> None:
    assert counts(invoke("count", timed, "--json")) == WORDS


def test_json_is_known_by_its_fields(timed: Path) -> None:
    path = timed.rename(timed.with_suffix(".log"))
    assert counts(invoke("count", path, "--text-field", "text", "--json")) == WORDS
    assert "ts" in counts(invoke("count", path, "--json"))
    assert counts(invoke("count", path, "--format", "json", "--json")) == WORDS


def test_the_configured_format_holds_unless_the_option_says_otherwise(timed: Path) -> None:
    as_text = ["--set", "value.format=text", "--json"]
    assert "ts" in counts(invoke("count", timed, *as_text))
    assert counts(invoke("count", timed, "--format", "json", *as_text)) == WORDS


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    rows = {"body": TEXTS, "ts": list(range(len(TEXTS))), "more": ["x"] * len(TEXTS)}
    parquet.write_table(pyarrow.table(rows), path)
    result = invoke("count", path, "--text-field", "body", "--time-field", "ts", "--json")
    assert counts(result) == WORDS


def test_several_files_are_one_count(lines: Path, timed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    result = invoke("count", lines, timed, "--json", "--out", out)
    assert counts(result) == {word: 2 * count for word, count in WORDS.items()}
    offsets = decode_snapshot(out.read_bytes()).offsets
    assert offsets == {TopicPartition(str(path), 0): len(TEXTS) for path in (lines, timed)}


@pytest.mark.parametrize("files", [[], ["-"]])
def test_stdin(files: list[str]) -> None:
    done = run_process("count", *files, "--json", stdin="\n".join(TEXTS).encode())
    top = json.loads(done.stdout)["top"]
    assert {row["token"]: row["horizons"][0]["count"] for row in top} == WORDS


def test_decayed_counts_are_the_plain_sum(timed: Path) -> None:
    result = invoke(
        "count", timed, "--time-field", "ts", "--half-life", "2h", "--half-life", "inf", "--json"
    )
    (counted,) = json_lines(result)
    last_ms = (len(TEXTS) - 1) * HOUR_MS
    assert counted["half_lives"] == ["2h", "inf"]
    assert counted["as_of_ms"] == last_ms
    for row in counted["top"]:
        short, plain = row["horizons"]
        expected = decayed(row["token"], 2 * HOUR_MS, last_ms)
        assert short["count"] == pytest.approx(expected, rel=1e-9)
        assert short["per_second"] == pytest.approx(expected * math.log(2) / 7200, rel=1e-9)
        assert plain["per_second"] is None


@pytest.mark.parametrize(
    ("as_of", "ms"),
    [
        ("360000000", 360_000_000),
        ("1970-01-05T04:00:00Z", 360_000_000),
        ("1970-01-05T04:00", 360_000_000),
        ("1970-01-05T05:00+01:00", 360_000_000),
    ],
)
def test_as_of(timed: Path, as_of: str, ms: int) -> None:
    result = invoke(
        "count", timed, "--time-field", "ts", "--half-life", "6h", "--as-of", as_of, "--json"
    )
    (counted,) = json_lines(result)
    assert counted["as_of_ms"] == ms
    for row in counted["top"]:
        expected = decayed(row["token"], 6 * HOUR_MS, ms)
        assert row["horizons"][0]["count"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "half_lives"),
    [
        ([], ["inf"]),
        (["--time-field", "ts"], ["5m", "1h", "1d", "inf"]),
        (["--time-field", "ts", "--half-life", "7m"], ["7m"]),
        (["--time-field", "ts", "--set", "counting.half_lives=9m"], ["9m"]),
        (["--half-life", "inf"], ["inf"]),
    ],
)
def test_which_half_lives(timed: Path, arguments: list[str], half_lives: list[str]) -> None:
    (counted,) = json_lines(invoke("count", timed, *arguments, "--json"))
    assert counted["half_lives"] == half_lives


def test_a_finite_half_life_needs_times(timed: Path) -> None:
    result = invoke("count", timed, "--half-life", "1h")
    assert result.exit_code == 2
    assert "--half-life needs --time-field" in result.stderr
    configured = invoke("count", timed, "--set", "counting.half_lives=1h", "--json")
    assert configured.exit_code == 0
    assert "nothing decays" in configured.stderr


def test_cleaning_and_no_cleaning(tmp_path: Path) -> None:
    path = tmp_path / "dirty.txt"
    path.write_text("Cafe\u0301 Ca\x00f\u00e9\n")
    assert set(counts(invoke("count", path, "--json", "--set", "text.lowercase=true"))) == {"café"}
    configured = ["--set", "text.mask=email"]
    as_it_is = counts(invoke("count", path, "--json", "--no-clean", *configured))
    assert "Cafe\u0301" in as_it_is


def test_masking(tmp_path: Path) -> None:
    path = tmp_path / "mail.txt"
    path.write_text("write to someone@example.com\n")
    masked = counts(invoke("count", path, "--json", "--set", "text.mask=email"))
    assert "someone" not in masked
    assert "write" in masked


def test_top(lines: Path) -> None:
    (counted,) = json_lines(invoke("count", lines, "--json", "--top", "2"))
    assert counted["top"][0]["token"] == "the"
    assert len(counted["top"]) == 2
    (none,) = json_lines(invoke("count", lines, "--json", "--top", "0"))
    assert none["top"] == []


def test_the_table(lines: Path) -> None:
    result = invoke("count", lines, "--top", "3")
    header, first, *_ = result.stdout.splitlines()
    assert header.split() == ["rank", "token", "id", "share", "count"]
    assert first.split()[:2] == ["1", "the"]
    assert first.split()[-1] == "28"
    assert "28 records, 105 tokens" in result.stderr


def test_count_min_shows_each_word_once(lines: Path) -> None:
    result = invoke("count", lines, "--json", "--set", "tokenizer.words_rows=3")
    assert counts(result) == WORDS
    (counted,) = json_lines(result)
    assert counted["tokens"] == WORDS.total()


def test_bad_records_are_left_out_and_summed_up(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    rows = [b'{"text": "good one"}', b"no json", b'{"other": 1}', b"", b'{"text": "\xff fine"}']
    path.write_bytes(b"\n".join(rows))
    result = invoke("count", path, "--json")
    (counted,) = json_lines(result)
    assert counted["records"] == 2
    assert counted["bad_records"] == {
        "empty": 1, "no_text_field": 1, "not_json": 1, "replaced_utf8": 1,
    }  # fmt: skip
    assert "records: 1 empty, 1 no_text_field, 1 not_json, 1 replaced_utf8" in result.stderr


def test_a_bad_record_stops_the_count_where_the_policy_says_so(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "a"}\nno json\n')
    result = invoke("count", path, "--set", "value.on_bad=stop")
    assert result.exit_code == 4
    assert f"{path} record 1: not_json, and the policy says stop" in result.stderr


def test_late_records_are_dropped_within_their_own_file(tmp_path: Path) -> None:
    new, old = tmp_path / "new.jsonl", tmp_path / "old.jsonl"
    new.write_text(f'{{"ts": {9 * HOUR_MS}, "text": "new"}}\n{{"ts": 0, "text": "late"}}\n')
    old.write_text('{"ts": 0, "text": "old"}\n')
    result = invoke(
        "count", new, old, "--time-field", "ts", "--json",
        "--set", "counting.max_lateness_seconds=1h", "--set", "counting.on_late=drop",
    )  # fmt: skip
    assert set(counts(result)) == {"new", "old"}
    (counted,) = json_lines(result)
    assert counted["bad_records"] == {"late": 1}


def test_out_is_a_snapshot_file(timed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    result = invoke("count", timed, "--time-field", "ts", "--out", out)
    assert result.exit_code == 0
    snapshot = decode_snapshot(out.read_bytes())
    assert snapshot.half_lives_seconds == (300.0, 3600.0, 86400.0, math.inf)
    assert snapshot.counts_HV[-1].sum() == WORDS.total()
    assert list(snapshot.weights) == ["default"]
    weights = snapshot.weights["default"].astype(float)
    stream = snapshot.counts_HV[-1] / snapshot.counts_HV[-1].sum()
    assert stream @ weights == pytest.approx(1.0, rel=1e-5)
    assert invoke("snapshot", "top", out).stdout.splitlines()[2].split()[1] == "the"


def test_a_recipe_that_does_not_fit_is_refused_before_the_work(timed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    recipe = "weights.a.product=[{scheme='idf', horizon='1h'}]"
    result = invoke("count", timed, "--out", out, "--set", recipe)
    assert result.exit_code == 2
    assert "weights.a.product[0].horizon" in result.stderr
    assert not out.exists()


def test_an_empty_input_counts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty.txt"
    path.write_text("")
    out = tmp_path / "out.safetensors"
    (counted,) = json_lines(invoke("count", path, "--json", "--out", out))
    assert (counted["records"], counted["tokens"], counted["top"]) == (0, 0, [])
    assert decode_snapshot(out.read_bytes()).counts_HV.sum() == 0


@pytest.mark.shared_data
def test_real_text_against_the_reference_library(shared_dir: Path, tmp_path: Path) -> None:
    import tokenizers

    path = tmp_path / "head.jsonl"
    with gzip.open(shared_dir / "data" / "hn_frontpage.jsonl.gz", "rt", encoding="utf-8") as file:
        path.write_text("".join(line for line, _ in zip(file, range(4_000), strict=False)))
    folder = shared_dir / "tokenizers" / "gpt2"
    out = tmp_path / "out.safetensors"
    result = invoke(
        "count", path, "--time-field", "ts", "--tokenizer", folder, "--no-clean", "--out", out
    )
    assert result.exit_code == 0, result.stderr
    reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids: Counter[int] = Counter()
    for line in path.read_text().splitlines():
        ids.update(reference.encode(json.loads(line)["text"], add_special_tokens=False).ids)
    counts_V = decode_snapshot(out.read_bytes()).counts_HV[-1]
    assert {i: int(counts_V[i]) for i in counts_V.nonzero()[0]} == ids


@pytest.mark.parametrize("spelling", ["in.txt", "./in.txt", "link.txt"])
def test_out_never_overwrites_what_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("some words\n")
    Path("link.txt").symlink_to("in.txt")
    done = invoke("count", "in.txt", "--out", spelling)
    assert done.exit_code == 2
    assert "name another" in done.stderr
    assert Path("in.txt").read_text() == "some words\n"
