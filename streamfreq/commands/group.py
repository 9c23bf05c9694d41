"""A group of commands: imported when they are used, and every error is a line and an exit code.

Both programs are made of it. Errors raised on purpose become one line each on stderr; see
errors.py for the exit codes.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

import click

from streamfreq import __version__
from streamfreq.commands.secrets import blotted, forget_secrets
from streamfreq.errors import StreamfreqError

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


class LazyGroup(click.Group):
    """Commands by name: where each is (`module:attribute`), and its line in the help."""

    def __init__(
        self, *args: Any, lazy: Mapping[str, tuple[str, str]] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy if lazy is not None else {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order in which a person meets them."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command; imported now."""
        if cmd_name not in self.lazy:
            return None
        module, _, attribute = self.lazy[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that `args` name; a mistyped one is answered with the nearest."""
        near = [] if args[0] in self.lazy else get_close_matches(args[0], self.lazy, n=1)
        if near:
            ctx.fail(f"No such command '{args[0]}'; did you mean {near[0]}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.lazy.items()])

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
        forget_secrets()
        kwargs["standalone_mode"] = False
        program = self.name or ""
        try:
            code = super().main(*args, **kwargs)
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        except click.Abort:
            code = INTERRUPTED
        except StreamfreqError as error:
            code = error.exit_code
            _say(program, str(error), error)
        except Exception as error:
            code = StreamfreqError.exit_code
            _say(program, _our_fault(error), error)
        sys.exit(code if isinstance(code, int) else 0)


def _our_fault(error: Exception) -> str:
    """One line for an error that nobody foresaw.

    Its message may quote what was being worked on, so only the first line is shown, shortened.
    """
    first = (str(error).splitlines() or [""])[0][:200]
    what = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return f"a fault of ours: {what}; run with STREAMFREQ_DEBUG=1 for the traceback"


def _say(program: str, message: str, error: Exception) -> None:
    """`message` on stderr, each line with the program's name; before it, if wanted, a traceback."""
    if os.environ.get("STREAMFREQ_DEBUG", "0") not in ("", "0"):
        import traceback

        click.echo(blotted("".join(traceback.format_exception(error))), err=True, nl=False)
    for line in blotted(message).splitlines():
        click.echo(f"{program}: {line}", err=True)


def _let_go_of_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush is quiet."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def run_program(cli: click.Group) -> NoReturn:
    """The console script of `cli`: text that the terminal can't show is escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        cli.main(prog_name=cli.name)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def version_option(program: str) -> Callable[[Any], Any]:
    """--version, which imports nothing heavy."""

    def show(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted and not ctx.resilient_parsing:
            click.echo(f"{program} {__version__}")
            ctx.exit()

    return click.option(
        "--version",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=show,
        help="Show the version and exit.",
    )
