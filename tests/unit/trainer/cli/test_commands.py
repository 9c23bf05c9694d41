"""The trainer's program: fast help, every command documented, mistakes in one line."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.architecture.source_files import ROOT
from trainer.cli import COMMANDS, cli

HEAVY = ("torch", "transformers", "numpy", "pydantic", "accelerate", "redis", "kafka", "matplotlib")
DOCUMENTATION = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


def test_version() -> None:
    result = CliRunner().invoke(cli, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"streamfreq-trainer {version('streamfreq')}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["nonsense"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import sys\nfrom trainer.cli import main\n"
        f"try:\n    main()\nfinally:\n    print([n for n in {HEAVY} if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert f"## `streamfreq-trainer {name}`" in DOCUMENTATION
    section = DOCUMENTATION.split(f"## `streamfreq-trainer {name}`")[1].split("\n## ")[0]
    shared = {"--config", "-c", "--set", "--show-config"}
    for parameter in command.params:
        for option in {*parameter.opts} - shared:
            if option.startswith("-"):
                assert f"`{option}" in section, option


def run(*arguments: str, file: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trainer", *arguments], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "kafka.topics or kafka.topic_pattern: give exactly one of them"),
        ('[kafka]\ntopics = ["a"]', "model.path or model.new: name the model to train"),
        (
            '[kafka]\ntopics = ["a"]\n[model.new]\nmodel_type = "llama"',
            "tokenizer.path: a new model needs a tokenizer",
        ),
        ("[step]\nrowz = 1", "step.rowz: no such field; did you mean step.rows?"),
        ('[loss]\nkind = "wieghted"', "did you mean weighted?"),
        ("[weights]\nstrength = 2", "weights.strength = 2: must be at most 1"),
        (
            '[kafka]\ntopics = ["a"]\n[model]\npath = "m"\n[optimizer]\nschedule = "cosine"',
            "optimizer.schedule = cosine needs max_steps",
        ),
    ],
)
def test_a_mistake_in_the_configuration_is_one_line(
    tmp_path: Path, content: str, says: str
) -> None:
    file = tmp_path / "trainer.toml"
    file.write_text(content)
    done = CliRunner().invoke(cli, ["run", "-c", str(file)])
    assert done.exit_code == 2
    assert says in done.stderr
    assert all(line.startswith("streamfreq-trainer: ") for line in done.stderr.splitlines())


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "trainer.toml"
    file.write_text(
        '[kafka]\ntopics = ["a"]\n[model]\npath = "m"\n[redis]\npassword = "s3cret-word"'
    )
    done = CliRunner().invoke(cli, ["run", "-c", str(file), "--show-config"])
    assert done.exit_code == 0
    assert "s3cret-word" not in done.output
    shown = tomllib.loads(done.output)
    assert shown["redis"]["password"] == "********"
    assert shown["weights"]["product"][1]["scheme"] == "emergence"


def test_init_writes_an_example_that_loads(tmp_path: Path) -> None:
    file = tmp_path / "trainer.toml"
    assert CliRunner().invoke(cli, ["init", str(file)]).exit_code == 0
    done = CliRunner().invoke(cli, ["run", "-c", str(file), "--show-config"])
    assert done.exit_code == 0, done.output
    again = CliRunner().invoke(cli, ["init", str(file)])
    assert again.exit_code == 2
    assert "--force overwrites it" in again.stderr


def test_plot_names_the_missing_file(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["plot", str(tmp_path)])
    assert done.exit_code == 2
    assert "metrics.jsonl: no such file" in done.stderr


def test_the_environment_sets_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMFREQ_TRAINER__KAFKA__TOPICS", "x,y")
    monkeypatch.setenv("STREAMFREQ_TRAINER__MODEL__PATH", "somewhere")
    monkeypatch.setenv("STREAMFREQ__KAFKA__TOPICS", "not-ours")
    done = CliRunner().invoke(cli, ["run", "--show-config"])
    assert done.exit_code == 0
    assert tomllib.loads(done.output)["kafka"]["topics"] == ["x", "y"]
