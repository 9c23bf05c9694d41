"""`streamfreq count`: the full recount of files or stdin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streamfreq.clock import SystemClock
from streamfreq.commands import ConfigArguments, config_options, json_option

_NO_CLEANING = {
    "text.normalize": "none",
    "text.unescape_html": "false",
    "text.strip_control": "false",
    "text.collapse_whitespace": "false",
    "text.lowercase": "false",
    "text.mask": "[]",
}


def _half_lives(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> Any:
    from streamfreq.config import parse_duration

    for value in values:
        try:
            parse_duration(value)
        except ValueError as error:
            raise click.BadParameter(f"{value} is not {error}") from None
    return values


def _as_of(_: click.Context, __: click.Parameter, value: str) -> int | None:
    """ms since the epoch; None for the latest event time."""
    from datetime import UTC, datetime

    if value == "latest":
        return None
    if value == "now":
        return SystemClock().now_ms()
    if value.isdecimal():
        return int(value)
    try:
        moment = datetime.fromisoformat(value.upper())
    except ValueError:
        raise click.BadParameter(
            f"{value} is not latest, now, ms since the epoch, or a time like 2026-01-31T12:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--tokenizer", metavar="PATH", help="Tokenizer (tokenizer.path); default: words.")
@click.option(
    "--format",
    "value_format",
    type=click.Choice(["auto", "text", "json"]),
    default="auto",
    show_default=True,
    help="What a line is; auto: json for .json, .jsonl, .ndjson names or with a field option.",
)
@click.option("--text-field", metavar="NAME", help="JSON field with the text (value.text_field).")
@click.option("--time-field", metavar="NAME", help="JSON field with the time (value.time_field).")
@click.option(
    "--time-unit",
    type=click.Choice(["ms", "s", "iso"]),
    help="Unit of the time field (value.time_unit).",
)
@click.option(
    "--half-life",
    "half_lives",
    metavar="TIME",
    multiple=True,
    callback=_half_lives,
    help="Decay by event time, like 1h or inf; repeatable.",
)
@click.option(
    "--as-of",
    "as_of_ms",
    metavar="TIME",
    default="latest",
    show_default=True,
    callback=_as_of,
    help="Decay to: latest (event time), now, ms since the epoch, or ISO 8601.",
)
@click.option("--no-clean", is_flag=True, help="Count the text as it is, without clean or mask.")
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Show so many of the heaviest tokens.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="Write a snapshot file."
)
@config_options
@json_option
def count(arguments: ConfigArguments, **options: Any) -> None:
    """Count the tokens of FILES, from the first record to the last; - or none reads stdin.

    Text or JSON lines, also .gz or .zst, or .parquet. Without a --half-life the configuration's
    half-lives count if it sets any; else, with a time field, the default ones and inf; else inf
    alone, which is plain counts. Records that can't be used are left out and summed up on stderr.
    """
    more = {
        "tokenizer.path": options["tokenizer"],
        "value.text_field": options["text_field"],
        "value.time_field": options["time_field"],
        "value.time_unit": options["time_unit"],
        "counting.half_lives": ",".join(options["half_lives"]) or None,
        **(_NO_CLEANING if options["no_clean"] else {}),
    }
    config = arguments.load(needs_source=False, more=more)
    from streamfreq.cli.count_files import CountRequest, count_files

    count_files(
        config,
        CountRequest(
            files=options["files"] or (Path("-"),),
            value_format=options["value_format"],
            fields_given=bool(options["text_field"] or options["time_field"]),
            half_lives_given=bool(options["half_lives"]),
            as_of_ms=options["as_of_ms"],
            top=options["top"],
            out=options["out"],
            as_json=options["as_json"],
        ),
    )
