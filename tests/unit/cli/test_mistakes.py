"""A user's mistake: a line that names it, the exit code, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamfreq.codec import encode_snapshot
from tests.services.redis import free_port
from tests.unit.cli.samples import early, invoke

AWAY = f"redis://127.0.0.1:{free_port()}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with good and bad files, as the working directory."""
    (tmp_path / "text.txt").write_text("some text\n")
    (tmp_path / "bad.toml").write_text("job = \n")
    (tmp_path / "wrong.toml").write_text('[kafka]\ntopics = ["t"]\nmax_poll_records = "many"\n')
    (tmp_path / "cut.jsonl.gz").write_bytes(b"\x1f\x8b\x08\x00")
    (tmp_path / "noise.gz").write_bytes(b"this is not gzip")
    (tmp_path / "noise.zst").write_bytes(b"this is not zstandard")
    (tmp_path / "noise.parquet").write_bytes(b"this is not parquet")
    (tmp_path / "noise.safetensors").write_bytes(b"\x00" * 100)
    data = encode_snapshot(early())
    (tmp_path / "good.safetensors").write_bytes(data)
    (tmp_path / "cut.safetensors").write_bytes(data[:-9])
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "a_folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("command", "exit_code", "says"),
    [
        ("nonsense", 2, "No such command"),
        ("count --nonsense", 2, "No such option"),
        ("count missing.txt", 2, "missing.txt"),
        ("count a_folder", 2, "a_folder is a folder"),
        ("count text.txt text.txt", 2, "named twice"),
        ("count text.txt -c missing.toml", 2, "missing.toml: no such file"),
        ("count text.txt -c bad.toml", 2, "bad.toml: not valid TOML"),
        ("count text.txt -c wrong.toml", 2, "kafka.max_poll_records"),
        ("count text.txt -c a_folder", 2, "can't be read"),
        ("count text.txt --set job", 2, "KEY=VALUE"),
        ("count text.txt --set text.lowercas=true", 2, "did you mean text.lowercase?"),
        ("count text.txt --half-life soon", 2, "soon is not a duration"),
        ("count text.txt --half-life 1h", 2, "--half-life needs --time-field"),
        ("count text.txt --time-field t --half-life 1h --half-life 60m", 2, "must differ"),
        ("count text.txt --as-of yesterday", 2, "yesterday is not latest, now"),
        ("count text.txt --top -1", 2, "--top"),
        ("count text.txt --format xml", 2, "xml"),
        ("count text.txt --tokenizer missing.json", 2, "missing.json"),
        ("count text.txt --tokenizer tokenizer.json", 2, "tokenizer.json"),
        ("count text.txt --tokenizer text.txt", 2, "text.txt"),
        ("count text.txt --out a_folder/none/x.safetensors", 2, "there is no folder"),
        ("count text.txt --out a_folder", 2, "a_folder"),
        ("count text.txt --set counting.device=abacus", 2, "counting.device"),
        ("count cut.jsonl.gz", 4, "cut.jsonl.gz is cut off"),
        ("count noise.gz", 4, "noise.gz is damaged"),
        ("count noise.zst", 4, "noise.zst is damaged"),
        ("count noise.parquet", 4, "noise.parquet"),
        ("count text.txt --format json --set value.on_bad=stop", 4, "not_json"),
        ("snapshot", 2, "Usage"),
        ("snapshot nonsense", 2, "No such command"),
        ("snapshot show 7 --redis memory://none", 2, "has no snapshot"),
        ("snapshot show missing.file", 2, "neither a version, nor latest, nor a file"),
        ("snapshot show text.txt", 4, "text.txt"),
        ("snapshot show noise.safetensors", 4, "noise.safetensors"),
        ("snapshot show cut.safetensors", 4, "truncated or damaged"),
        ("snapshot show a_folder", 2, "a_folder"),
        ("snapshot top good.safetensors --horizon 9h", 2, '--horizon = "9h"'),
        ("snapshot top good.safetensors --rising --horizon inf", 2, "--rising"),
        ("snapshot top good.safetensors --tokenizer missing.json", 2, "missing.json"),
        ("snapshot top good.safetensors --set tokenizer.words_seed=5", 4, "right --tokenizer"),
        ("snapshot top good.safetensors -n 0", 2, "0"),
        ("snapshot diff good.safetensors", 3, "can't be reached"),
        ("snapshot export latest x.safetensors --redis memory://none", 2, "has no snapshot"),
        ("snapshot export good.safetensors text.txt", 2, "--force"),
        ("snapshot import missing.file --redis memory://none", 2, "missing.file"),
        ("snapshot import text.txt --redis memory://none", 4, "text.txt"),
        ("snapshot pin seven --redis memory://none", 2, "give a version number"),
        ("snapshot pin 7 --redis memory://none", 2, "has no snapshot"),
        ("snapshot list", 3, "can't be reached"),
        ("snapshot list --redis http://x", 2, "redis.url"),
        ("snapshot list --job two/words", 2, "job ="),
        ("snapshot list -c missing.toml", 2, "missing.toml"),
        ("check -c missing.toml", 2, ""),
        ("check", 2, ""),
        ("init text.txt", 2, "--force"),
        ("init a_folder/none/x.toml", 2, "can't be written"),
        ("init a_folder --force", 2, "can't be written"),
        ("run", 2, "kafka.topics or kafka.topic_pattern"),
        ("run -c bad.toml", 2, "not valid TOML"),
        ("run --set source.kind=files --set files.paths=missing.txt", 2, "missing.txt"),
    ],
)
def test_a_mistake(command: str, exit_code: int, says: str) -> None:
    # A service that is away is asked at an address that nobody listens at.
    env = {"STREAMFREQ__REDIS__URL": AWAY, "STREAMFREQ_DEBUG": ""}
    result = invoke(*command.split(), env=env)
    assert result.exit_code == exit_code, result.output
    assert says in result.stderr
    assert "Traceback" not in result.output
    assert "a fault of ours" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_several_mistakes_have_a_line_each(folder: Path) -> None:
    result = invoke("count", folder / "text.txt", "-c", folder / "wrong.toml", "--set", "jbo=x")
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("streamfreq: ") for line in lines)
