"""`streamfreq-trainer init`: a commented example configuration."""

from __future__ import annotations

from pathlib import Path

import click

from streamfreq.commands import write_example


@click.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default="trainer.toml")
@click.option("--force", is_flag=True, help="Overwrite FILE if it is there.")
def init(file: Path, force: bool) -> None:
    """Write a commented example configuration.

    FILE is trainer.toml unless given; - prints it.
    """
    from trainer.config.example import example_config

    text = example_config()
    if str(file) == "-":
        click.echo(text, nl=False)
        return
    write_example(file, text, force=force)
    click.echo(f"wrote {file}; next: set kafka.topics and model.path in it, then")
    click.echo(f"streamfreq-trainer check -c {file}")
