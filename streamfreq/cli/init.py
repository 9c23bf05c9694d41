"""`streamfreq init`: a commented example configuration."""

from __future__ import annotations

from pathlib import Path

import click

from streamfreq.cli.output import print_json
from streamfreq.commands import json_option, write_example


@click.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default="streamfreq.toml")
@click.option("--force", is_flag=True, help="Overwrite FILE if it is there.")
@json_option
def init(file: Path, force: bool, as_json: bool) -> None:
    """Write a commented example configuration.

    FILE is streamfreq.toml unless given; - prints it.
    """
    from streamfreq.config.example import example_config

    text = example_config()
    if str(file) == "-":
        click.echo(text, nl=False)
        return
    write_example(file, text, force=force)
    if as_json:
        print_json({"file": str(file)})
        return
    click.echo(f"wrote {file}; next: set kafka.topics in it, then streamfreq check -c {file}")
