"""What `streamfreq count` does with its options: read, recount, report."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamfreq.cli.output import Column, moment, note, number, percent, print_json, table
from streamfreq.cli.progress import progress
from streamfreq.cli.recount import Recount, bad_records
from streamfreq.cli.tokens import shown
from streamfreq.cli.views import one_id_per_name, order, rate_per_second
from streamfreq.clock import SystemClock
from streamfreq.config import format_duration
from streamfreq.errors import UsageError
from streamfreq.sources import value_columns
from streamfreq.sources.files import read_batches
from streamfreq.sources.readers import STDIN, check_readable
from streamfreq.weighting import validate

if TYPE_CHECKING:
    from streamfreq.codec import Snapshot
    from streamfreq.config import Config
    from streamfreq.tokenization.base import Tokenizer

_JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
_COMPRESSED_SUFFIXES = (".gz", ".zst")


@dataclass(frozen=True, slots=True)
class CountRequest:
    """The options of `streamfreq count` that are no configuration."""

    files: tuple[Path, ...]
    value_format: str
    fields_given: bool
    half_lives_given: bool
    as_of_ms: int | None
    top: int
    out: Path | None
    as_json: bool


def count_files(config: Config, request: CountRequest) -> None:
    """Count, print the heaviest tokens, and write the snapshot file where one is wanted.

    Raises UsageError, ConfigError, or BadRecord when a record's policy is `stop`.
    """
    from streamfreq.tokenization import load_tokenizer

    half_lives_seconds = chosen_half_lives(config, request)
    weights = config.weights if request.out is not None else {}
    validate(weights, half_lives_seconds, config.counting.documents)
    _require_files(request.files, request.out)
    tokenizer = load_tokenizer(config.tokenizer)
    recount = Recount(config, half_lives_seconds, tokenizer, SystemClock())
    started = time.monotonic()
    with progress(request.files) as advance:
        for path in request.files:
            value_format = format_of(path, config, request)
            columns = value_columns(config.value) if value_format == "json" else ()
            for batch in read_batches(str(path), advance, columns):
                recount.add(batch, value_format)
    seconds = time.monotonic() - started
    snapshot = recount.snapshot(request.as_of_ms, weights)
    _report(snapshot, recount, tokenizer, request, seconds)
    if request.out is not None:
        _write(snapshot, request.out)


def chosen_half_lives(config: Config, request: CountRequest) -> tuple[float, ...]:
    """The half-lives that were asked for, or those that fit what the records can tell.

    Raises UsageError for a finite --half-life without a time field: nothing would decay.
    """
    counting = config.counting
    asked = bool(counting.model_fields_set & {"half_lives", "decay"})
    horizons = counting.horizons_seconds
    if config.value.time_field:
        return horizons if asked or math.inf in horizons else (*horizons, math.inf)
    if not asked:
        return (math.inf,)
    if all(map(math.isinf, horizons)):
        return horizons
    if request.half_lives_given:
        raise UsageError(
            "--half-life needs --time-field: without event times nothing decays; "
            "plain counts are --half-life inf"
        )
    note("no time field: all records count as of now, so nothing decays")
    return horizons


def format_of(path: Path, config: Config, request: CountRequest) -> str:
    """What a line of the file is: text or json."""
    if request.value_format != "auto":
        return request.value_format
    name = path.name.lower()
    if name.endswith(".parquet"):
        return "json"
    if "format" in config.value.model_fields_set:
        return config.value.format
    for suffix in _COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    return "json" if request.fields_given or name.endswith(_JSON_SUFFIXES) else "text"


def _require_files(files: tuple[Path, ...], out: Path | None) -> None:
    """Refuse before the work begins what could not be read or written after it."""
    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"--out {out}: there is no folder {out.parent}")
    if out is not None and out.exists():
        if out.is_dir():
            raise UsageError(f"--out {out} is a folder: name a file")
        if any(path.exists() and out.samefile(path) for path in files if str(path) != STDIN):
            raise UsageError(f"--out {out} is a file to be counted: name another")
    if len(set(files)) != len(files):
        raise UsageError("a file is named twice: each counts once")
    for path in files:
        if str(path) != STDIN:
            check_readable(str(path))


def _report(
    snapshot: Snapshot,
    recount: Recount,
    tokenizer: Tokenizer,
    request: CountRequest,
    seconds: float,
) -> None:
    timed = any(map(math.isfinite, snapshot.half_lives_seconds))
    bad = bad_records(recount.tallies, () if timed else ("no_timestamp",))
    rows = heaviest(snapshot, tokenizer, request.top)
    records, tokens = recount.records, recount.tokens
    if request.as_json:
        print_json(
            {
                "records": records,
                "tokens": tokens,
                "bad_records": bad,
                "as_of_ms": snapshot.as_of_ms,
                "half_lives": [format_duration(h) for h in snapshot.half_lives_seconds],
                "tokenizer": {
                    "name": tokenizer.name,
                    "engine": tokenizer.engine,
                    "fingerprint": tokenizer.fingerprint,
                    "vocab_size": tokenizer.vocab_size,
                },
                "top": rows,
                "out": None if request.out is None else str(request.out),
            }
        )
    elif rows:
        click.echo(_table(rows, snapshot.half_lives_seconds))
    note(
        f"{number(records)} records, {number(tokens)} tokens in {seconds:.1f} s "
        f"({number(round(tokens / max(seconds, 1e-9)))} tokens/s), "
        f"tokenizer {tokenizer.name} by {tokenizer.engine}, as of {moment(snapshot.as_of_ms)}"
    )
    if recount.looks_like_json:
        note("the lines look like JSON and were counted as text; name --text-field or --format")
    if not records and "no_text_field" in bad:
        note("no record has the text field: is --text-field right?")
    if bad:
        note("records: " + ", ".join(f"{number(many)} {kind}" for kind, many in bad.items()))


def heaviest(snapshot: Snapshot, tokenizer: Tokenizer, top: int) -> list[dict[str, Any]]:
    """The heaviest tokens by the longest half-life, with their counts in each."""
    snapshot = one_id_per_name(snapshot)
    half_lives = snapshot.half_lives_seconds
    longest = half_lives.index(max(half_lives))
    counts_V = snapshot.counts_HV[longest]
    ids = order(counts_V, counts_V > 0, top)
    total = float(snapshot.tokens_H[longest])
    return [
        {
            "rank": rank,
            "id": int(token_id),
            "token": snapshot.labels.get(int(token_id)) or tokenizer.token_text(int(token_id)),
            "share": float(counts_V[token_id]) / total if total > 0 else 0.0,
            "horizons": [
                {
                    "half_life": format_duration(half_life),
                    "count": float(snapshot.counts_HV[row, token_id]),
                    "per_second": rate_per_second(
                        float(snapshot.counts_HV[row, token_id]), half_life
                    ),
                }
                for row, half_life in enumerate(half_lives)
            ],
        }
        for rank, token_id in enumerate(ids, start=1)
    ]


def _table(rows: list[dict[str, Any]], half_lives_seconds: tuple[float, ...]) -> str:
    columns = [Column("rank"), Column("token", numeric=False), Column("id"), Column("share")]
    for half_life in half_lives_seconds:
        plain = math.isinf(half_life)
        columns.append(Column("count" if plain else f"count {format_duration(half_life)}"))
        columns += [] if plain else [Column("per second")]
    return table(columns, [_cells(row) for row in rows])


def _cells(row: Mapping[str, Any]) -> list[str]:
    cells = [number(row["rank"]), shown(row["token"], row["id"]), str(row["id"])]
    cells.append(percent(row["share"]))
    for horizon in row["horizons"]:
        cells.append(number(horizon["count"]))
        if horizon["per_second"] is not None:
            cells.append(number(horizon["per_second"]))
    return cells


def _write(snapshot: Snapshot, out: Path) -> None:
    from streamfreq.cli.output import size
    from streamfreq.snapshots import write_snapshot_file

    note(f"wrote {out} ({size(write_snapshot_file(snapshot, out))})")
