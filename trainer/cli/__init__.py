"""The command `streamfreq-trainer`: its subcommands are imported when they are used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import click

from streamfreq.commands import LazyGroup, run_program, version_option

__all__ = ["COMMANDS", "cli", "main"]

COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("trainer.cli.run:run", "Train on the stream, weighted by the live snapshots."),
    "check": ("trainer.cli.check:check", "Say what is wrong, what would train, and by which path."),
    "plot": ("trainer.cli.plot:plot", "Draw loss per band and the most risen tokens as a PNG."),
    "init": ("trainer.cli.init:init", "Write a commented example configuration."),
}
"""Name: where the command is, and its line in the help."""


@click.command(
    cls=LazyGroup,
    name="streamfreq-trainer",
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@version_option("streamfreq-trainer")
def cli() -> None:
    """Fine-tune a language model on a stream, weighted by its live token frequencies.

    Exit codes: 0 done, 1 a fault of ours, 2 wrong usage or configuration, 3 a service could not be
    reached, 4 data refused, 130 interrupted.
    """


def main() -> NoReturn:
    """The console script."""
    run_program(cli)
