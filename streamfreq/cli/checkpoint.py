"""`streamfreq checkpoint ...`: the commands; what they do is in checkpoint_output.py."""

from __future__ import annotations

import sys

import click

from streamfreq.cli.snapshot import stored_options
from streamfreq.cli.stored import Stored
from streamfreq.commands import json_option


@click.group()
def checkpoint() -> None:
    """List and forget checkpoints, the daemons' own state of each partition."""


@checkpoint.command("list")
@stored_options
@json_option
def list_(stored: Stored, as_json: bool) -> None:
    """List the job's checkpoints: how far each partition is counted."""
    from streamfreq.cli.checkpoint_output import print_list

    print_list(stored, as_json=as_json)


@checkpoint.command()
@click.option("--topic", metavar="NAME", help="Of this topic.")
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Of this partition of the topic; repeatable.",
)
@click.option("--all", "everything", is_flag=True, help="Of every topic of the job.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@stored_options
@json_option
def delete(
    topic: str | None,
    partitions: tuple[int, ...],
    everything: bool,
    yes: bool,
    stored: Stored,
    as_json: bool,
) -> None:
    """Forget checkpoints, so that these partitions are counted anew.

    For a topic that was deleted and made again, or to count it once more. Stop every daemon of the
    job first: one that runs would write its own again.
    """
    from streamfreq.cli.checkpoint_output import delete_checkpoints, named

    if everything == (topic is not None) or (partitions and topic is None):
        raise click.UsageError("give --topic (perhaps with --partition), or --all")
    wanted = named(stored, topic, partitions)
    if not yes:
        _confirm(stored, len(wanted))
    delete_checkpoints(stored, wanted, as_json=as_json)


def _confirm(stored: Stored, number: int) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("this deletes what is counted; say --yes when nobody can be asked")
    click.confirm(f"Forget {number} partitions of {stored.where}?", abort=True, err=True)
