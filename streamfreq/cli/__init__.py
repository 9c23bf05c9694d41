"""The command `streamfreq`: its subcommands are imported when they are used, not before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import click

from streamfreq.commands import LazyGroup, run_program, version_option

__all__ = ["COMMANDS", "cli", "main"]

COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("streamfreq.cli.run:run", "Run the daemon: count the stream, publish snapshots."),
    "count": ("streamfreq.cli.count:count", "Count files or stdin, from the first to the last."),
    "snapshot": ("streamfreq.cli.snapshot:snapshot", "List, show, compare and move snapshots."),
    "checkpoint": ("streamfreq.cli.checkpoint:checkpoint", "List and forget checkpoints."),
    "check": ("streamfreq.cli.check:check", "Say what is wrong with a configuration or a service."),
    "init": ("streamfreq.cli.init:init", "Write a commented example configuration."),
    "demo": ("streamfreq.cli.demo.command:demo", "Show the daemon at work on real text, live."),
}
"""Name: where the command is, and its line in the help."""


@click.command(
    cls=LazyGroup,
    name="streamfreq",
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@version_option("streamfreq")
def cli() -> None:
    """Exponentially decayed token counts over streams, published as versioned snapshots.

    Exit codes: 0 done, 1 a fault of ours, 2 wrong usage or configuration, 3 a service could not be
    reached, 4 data refused, 130 interrupted.
    """


def main() -> NoReturn:
    """The console script."""
    run_program(cli)
