"""The trainer's command is there, is cheap, and says what it can't do."""

from __future__ import annotations

from importlib.metadata import version

from click.testing import CliRunner

from trainer.cli import cli


def test_version() -> None:
    result = CliRunner().invoke(cli, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"streamfreq-trainer, version {version('streamfreq')}\n"


def test_run_says_in_one_line_that_it_cannot_train() -> None:
    result = CliRunner().invoke(cli, ["run"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert "not part of this release" in result.stderr
    assert "streamfreq.snapshots" in result.stderr
