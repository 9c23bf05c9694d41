"""docs/cli.md names every command and every option; a test that is hard to forget."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from streamfreq.cli import COMMANDS, cli

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
SHARED = {"--help", "-h"}


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command by the words that call it."""
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            for child, inner in command.commands.items():
                yield f"{name} {child}", inner


ALL = dict(commands())


def section(name: str) -> str:
    """The text under a command's own heading."""
    match = re.search(rf"^#+ `streamfreq {name}\b[^`]*`\n(.*?)(?=^#+ |\Z)", TEXT, re.M | re.S)
    assert match, f"docs/cli.md has no heading `streamfreq {name}`"
    return match[1]


@pytest.mark.parametrize("name", ALL)
def test_every_option_is_documented(name: str) -> None:
    text = section(name)
    for parameter in ALL[name].params:
        if isinstance(parameter, click.Option):
            for option in {*parameter.opts, *parameter.secondary_opts} - SHARED:
                assert re.search(rf"`{re.escape(option)}[`\s]", text), f"{name}: {option}"


@pytest.mark.parametrize("name", ALL)
def test_every_documented_option_is_there(name: str) -> None:
    known = {option for parameter in ALL[name].params for option in parameter.opts}
    for option in re.findall(r"`(--?[a-z][a-z-]*)", section(name)):
        assert option in known | {"--json"} | set(_shown_in_examples(name)), f"{name}: {option}"


def _shown_in_examples(name: str) -> list[str]:
    """The group's section tells the options of its subcommands."""
    inner = [command for child, command in ALL.items() if child.startswith(f"{name} ")]
    return [option for command in inner for item in command.params for option in item.opts]


@pytest.mark.parametrize("name", ALL)
def test_every_command_and_option_has_help(name: str) -> None:
    assert ALL[name].help
    for parameter in ALL[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_every_documented_command_is_there() -> None:
    for name in re.findall(r"^#+ `streamfreq ([a-z]+(?: [a-z]+)?)", TEXT, re.M):
        assert name in ALL


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("run", "demo")])
def test_commands_that_print_have_json(name: str) -> None:
    if not isinstance(ALL[name], click.Group):
        assert any("--json" in parameter.opts for parameter in ALL[name].params)
