"""The command `streamfreq`: its subcommands are imported when they are used, not before.

Errors raised on purpose become one line each on stderr and their exit code; see errors.py.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

import click

from streamfreq.errors import StreamfreqError

__all__ = ["COMMANDS", "LazyGroup", "cli", "main"]

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

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


class LazyGroup(click.Group):
    """A group whose commands are imported on use, and which turns errors into exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order in which a person meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command; imported now."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that `args` name; a mistyped one is answered with the nearest."""
        near = [] if args[0] in COMMANDS else get_close_matches(args[0], COMMANDS, n=1)
        if near:
            ctx.fail(f"No such command '{args[0]}'; did you mean {near[0]}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader of stdout that has gone away is no error."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _let_go_of_stdout()
            ctx.exit(0)
        return result

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run with the process's arguments (or `args`) and end with the exit code."""
        from streamfreq.cli.failures import forget_secrets

        forget_secrets()
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, **kwargs)
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        except click.Abort:
            code = INTERRUPTED
        except StreamfreqError as error:
            code = error.exit_code
            _say(str(error), error)
        except Exception as error:
            code = StreamfreqError.exit_code
            _say(_our_fault(error), error)
        sys.exit(code if isinstance(code, int) else 0)


def _our_fault(error: Exception) -> str:
    """One line for an error that nobody foresaw.

    Its message may quote what was being worked on, so only the first line is shown, shortened.
    """
    first = (str(error).splitlines() or [""])[0][:200]
    what = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return f"a fault of ours: {what}; run with STREAMFREQ_DEBUG=1 for the traceback"


def _say(message: str, error: Exception) -> None:
    """`message` on stderr, each line with our name; before it the traceback, for developers."""
    from streamfreq.cli.failures import blotted

    if os.environ.get("STREAMFREQ_DEBUG", "0") not in ("", "0"):
        import traceback

        click.echo(blotted("".join(traceback.format_exception(error))), err=True, nl=False)
    for line in blotted(message).splitlines():
        click.echo(f"streamfreq: {line}", err=True)


def _let_go_of_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush is quiet."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from streamfreq import __version__

        click.echo(f"streamfreq {__version__}")
        ctx.exit()


@click.command(
    cls=LazyGroup, name="streamfreq", context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Exponentially decayed token counts over streams, published as versioned snapshots.

    Exit codes: 0 done, 1 a fault of ours, 2 wrong usage or configuration, 3 a service could not be
    reached, 4 data refused, 130 interrupted.
    """


def main() -> NoReturn:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        cli.main(prog_name="streamfreq")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
