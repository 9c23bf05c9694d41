"""The command `streamfreq-trainer`. Training is not part of this release, and `run` says so."""

from __future__ import annotations

import click

NOT_IN_THIS_RELEASE = (
    "training is not part of this release; read the weight snapshots from your own training loop "
    "with streamfreq.snapshots, or look at them with `streamfreq snapshot show`"
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="streamfreq", prog_name="streamfreq-trainer")
def cli() -> None:
    """Fine-tune a language model on a stream, weighted by its live token frequencies."""


@cli.command()
@click.pass_context
def run(ctx: click.Context) -> None:
    """Train (not part of this release: ends with exit code 1)."""
    click.echo(f"streamfreq-trainer: {NOT_IN_THIS_RELEASE}", err=True)
    ctx.exit(1)


def main() -> None:
    """The console script."""
    cli()
