"""`streamfreq-trainer plot`: a picture of a run."""

from __future__ import annotations

from pathlib import Path

import click

from streamfreq.errors import UsageError


@click.command()
@click.argument("output", type=click.Path(path_type=Path, file_okay=False))
@click.option("--png", type=click.Path(path_type=Path), help="File to write [OUTPUT/curves.png].")
def plot(output: Path, png: Path | None) -> None:
    """Draw the loss per band over time, and the weights of the most risen tokens.

    OUTPUT is the folder that a run has written (`output` of its configuration).
    """
    history = output / "metrics.jsonl"
    if not history.is_file():
        raise UsageError(f"{history}: no such file; name the output folder of a run")
    from trainer.monitors.plot import draw

    target = png or output / "curves.png"
    draw(history, target)
    click.echo(f"wrote {target}")
