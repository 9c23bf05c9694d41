"""`streamfreq check`: what is wrong, and the way out, one line each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from streamfreq.commands import ConfigArguments, config_options, json_option

_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "fail"}


@click.command()
@config_options
@json_option
@click.pass_context
def check(ctx: click.Context, arguments: ConfigArguments, as_json: bool) -> None:
    """Check configuration, tokenizer, weights, device, source and store.

    All checks run even when one fails. The exit code is that of the worst: 2 configuration,
    3 a service could not be reached, 4 data refused.
    """
    from streamfreq.cli.checks import run_checks, worst_exit_code
    from streamfreq.cli.output import print_json
    from streamfreq.commands import blotted

    results = []
    with _libraries_silent():
        for result in run_checks(arguments.load):
            message = blotted(result.message)
            if as_json:
                print_json({"check": result.check, "status": result.status, "message": message})
            else:
                click.echo(f"{_MARKS[result.status]}  {result.check}: {message}")
            results.append(result)
    ctx.exit(worst_exit_code(results))


@contextmanager
def _libraries_silent() -> Iterator[None]:
    """What libraries log on the way to a failure, its line says already."""
    import logging

    handler = logging.NullHandler()
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
