"""`streamfreq init`: a commented example configuration."""

from __future__ import annotations

from pathlib import Path

import click

from streamfreq.cli.output import print_json
from streamfreq.commands import json_option
from streamfreq.errors import UsageError


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
    try:
        with file.open("w" if force else "x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise UsageError(f"{file} is there already; --force overwrites it") from None
    except OSError as error:
        raise UsageError(f"{file} can't be written ({error.strerror})") from None
    if as_json:
        print_json({"file": str(file)})
        return
    click.echo(f"wrote {file}; next: set kafka.topics in it, then streamfreq check -c {file}")
