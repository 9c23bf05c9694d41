"""`streamfreq snapshot ...`: the commands; what they show is computed in views.py."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from streamfreq.cli.stored import LATEST, Stored
from streamfreq.commands import ConfigArguments, config_options, json_option

top_option = click.option(
    "-n", "--top", type=click.IntRange(min=1), default=20, show_default=True, help="So many tokens."
)
ids_option = click.option("--ids", is_flag=True, help="Show ids; load no tokenizer.")
horizon_option = click.option(
    "--horizon",
    metavar="H",
    help="shortest, longest, or a half-life like 1h; longest unless --rising.",
)


def stored_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say where a job keeps its state; the command gets them as `stored`."""

    @config_options
    @click.option("--redis", "redis_url", metavar="URL", help="The store (redis.url).")
    @click.option("--job", metavar="NAME", help="Whose (job).")
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        arguments: ConfigArguments,
        redis_url: str | None,
        job: str | None,
        tokenizer: str | None = None,
        **kwargs: Any,
    ) -> Any:
        more = {"redis.url": redis_url, "job": job, "tokenizer.path": tokenizer}
        stored = Stored(arguments.load(needs_source=False, more=more))
        return command(*args, stored=stored, **kwargs)

    return wrapped


tokenizer_option = click.option(
    "--tokenizer", metavar="PATH", help="Tokenizer that gives the tokens' text (tokenizer.path)."
)


@click.group()
def snapshot() -> None:
    """List, show, compare and move snapshots.

    A VERSION is a number or `latest`; show, top and diff take a snapshot FILE as well.
    """


@snapshot.command("list")
@stored_options
@json_option
def list_(stored: Stored, as_json: bool) -> None:
    """List the versions that are kept, oldest first."""
    from streamfreq.cli.snapshot_output import print_list

    print_list(stored, as_json=as_json)


@snapshot.command()
@click.argument("version", default=LATEST)
@stored_options
@json_option
def show(version: str, stored: Stored, as_json: bool) -> None:
    """Show what a snapshot counts: times, totals, offsets, gaps, weights."""
    from streamfreq.cli.snapshot_output import print_show

    print_show(stored.read(version), as_json=as_json)


@snapshot.command()
@click.argument("version", default=LATEST)
@click.option("--rising", is_flag=True, help="Those that grow most against the longest horizon.")
@top_option
@horizon_option
@ids_option
@tokenizer_option
@stored_options
@json_option
def top(
    version: str,
    rising: bool,
    top: int,
    horizon: str | None,
    ids: bool,
    stored: Stored,
    as_json: bool,
) -> None:
    """Show the heaviest tokens, or the rising ones, with rates, ranks and weights."""
    from streamfreq.cli.snapshot_output import print_top
    from streamfreq.cli.tokens import token_text

    read = stored.read(version)
    text = token_text([read], stored.config.tokenizer, ids=ids)
    wanted = horizon or ("shortest" if rising else "longest")
    print_top(read, wanted, top, text, rising=rising, as_json=as_json)


@snapshot.command()
@click.argument("a")
@click.argument("b", default=LATEST)
@top_option
@click.option(
    "--horizon",
    metavar="H",
    default="longest",
    show_default=True,
    help="shortest, longest, or a half-life like 1h.",
)
@ids_option
@tokenizer_option
@stored_options
@json_option
def diff(a: str, b: str, top: int, horizon: str, ids: bool, stored: Stored, as_json: bool) -> None:
    """Show which tokens rose and fell most from A to B."""
    from streamfreq.cli.snapshot_output import print_diff
    from streamfreq.cli.tokens import token_text

    pair = stored.read(a), stored.read(b)
    text = token_text(pair, stored.config.tokenizer, ids=ids)
    print_diff(pair, horizon, top, text, as_json=as_json)


@snapshot.command()
@click.argument("version")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite FILE if it is there.")
@stored_options
@json_option
def export(version: str, file: Path, force: bool, stored: Stored, as_json: bool) -> None:
    """Write a snapshot to a file, as the store holds it."""
    from streamfreq.cli.transfers import export_snapshot

    export_snapshot(stored, version, file, force, as_json=as_json)


@snapshot.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@stored_options
@json_option
def import_(file: Path, stored: Stored, as_json: bool) -> None:
    """Publish a snapshot file as the newest version of the job.

    It gets the job's name and next version number. The publisher's lease is taken for it, so no
    daemon of the job may be publishing.
    """
    from streamfreq.cli.transfers import import_snapshot

    import_snapshot(stored, file, as_json=as_json)


@snapshot.command()
@click.argument("version")
@stored_options
@json_option
def pin(version: str, stored: Stored, as_json: bool) -> None:
    """Keep a version for good."""
    from streamfreq.cli.transfers import set_pinned

    set_pinned(stored, version, True, as_json=as_json)


@snapshot.command()
@click.argument("version")
@stored_options
@json_option
def unpin(version: str, stored: Stored, as_json: bool) -> None:
    """Let a pinned version go when its turn comes."""
    from streamfreq.cli.transfers import set_pinned

    set_pinned(stored, version, False, as_json=as_json)
