"""`streamfreq-trainer check` looks at everything, and says what is wrong in one line each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamfreq.config import RedisConfig, SnapshotsConfig
from streamfreq.config.show import show_config
from streamfreq.snapshots import open_snapshots
from tests.unit.trainer.runs import make_snapshot, make_tokenizer, run_config, texts, write_stream
from trainer.cli import cli


@pytest.fixture
def file(tmp_path: Path) -> Path:
    config = run_config(tmp_path / "out", write_stream(tmp_path, 5), make_tokenizer(tmp_path))
    path = tmp_path / "trainer.toml"
    path.write_text(show_config(config))
    return path


def check(file: Path, *settings: str):
    words = [word for item in settings for word in ("--set", item)]
    return CliRunner().invoke(cli, ["check", "-c", str(file), *words])


def publish(file: Path, **changes: object) -> None:
    url = f"memory://{file.parent / 'out'}"
    store = open_snapshots(RedisConfig(url=url), SnapshotsConfig(), "test")
    snapshot = make_snapshot(file.parent / "tokenizer.json", texts(50))
    store.publish(replace(snapshot, **changes), 1)


def test_it_says_what_trains_and_by_which_path(file: Path) -> None:
    done = check(file)
    assert done.exit_code == 0, done.output
    assert "layers 0 to 1" in done.stdout
    assert "ok    loss: weighted, plain path (a vocabulary of 300 is small" in done.stdout
    assert "ok    stream: 1 files" in done.stdout
    assert "warn  weights: job test has published none" in done.stdout


def test_it_looks_at_the_newest_snapshot(file: Path) -> None:
    publish(file)
    assert "ok    weights: snapshot 1 of job test" in check(file).stdout


def test_another_tokenizers_snapshot_is_a_failure(file: Path) -> None:
    publish(file, tokenizer_fingerprint="0" * 64)
    done = check(file)
    assert done.exit_code == 4
    assert "fail  weights: the newest one is damaged or of another tokenizer" in done.stdout


def test_a_store_that_is_away_is_a_failure(file: Path) -> None:
    done = check(file, "redis.url=redis://127.0.0.1:1/0")
    assert done.exit_code == 3
    assert "fail  store: " in done.stdout


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("data.block_size=512", "data.block_size = 512: the model has 64 positions"),
        ("freezing.first_layers=9", "freezing.first_layers = 9: the model has 2 layers"),
        ("loss.path=fused", ""),
        ("model.new.model_type=lama", "did you mean llama"),
        ("tokenizer.path=nowhere.json", "there is no file or folder nowhere.json"),
    ],
)
def test_what_cannot_be_is_one_line(file: Path, setting: str, says: str) -> None:
    done = check(file, setting)
    if not says:
        assert done.exit_code == 0
        return
    assert done.exit_code == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
