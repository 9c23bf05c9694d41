"""`streamfreq init`."""

from __future__ import annotations

from pathlib import Path

from streamfreq.config.example import example_config
from tests.unit.cli.samples import invoke


def test_it_writes_the_example_once(tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    assert invoke("init", path).exit_code == 0
    assert path.read_text(encoding="utf-8") == example_config()
    path.write_text("mine")
    again = invoke("init", path)
    assert again.exit_code == 2
    assert again.stderr == f"streamfreq: {path} is there already; --force overwrites it\n"
    assert path.read_text() == "mine"
    assert invoke("init", path, "--force").exit_code == 0
    assert path.read_text(encoding="utf-8") == example_config()


def test_it_prints_the_example() -> None:
    result = invoke("init", "-")
    assert (result.exit_code, result.stdout) == (0, example_config())


def test_the_default_name(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke("init").exit_code == 0
    assert (tmp_path / "streamfreq.toml").exists()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    result = invoke("init", tmp_path / "none" / "x.toml")
    assert result.exit_code == 2
    assert "can't be written" in result.stderr


def test_check_accepts_the_example_as_configuration(tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    invoke("init", path)
    result = invoke(
        "check", "-c", path, "--set", "source.kind=files", "--set", f"files.paths={path}",
        "--set", "redis.url=memory://x", "--set", "kafka.topics=", "--set", "job=x",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "ok    configuration: job x" in result.stdout
