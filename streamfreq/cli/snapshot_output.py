"""How the snapshot commands print: tables for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from streamfreq.cli.output import (
    Column,
    ago,
    fields,
    moment,
    note,
    number,
    percent,
    print_json,
    rank_change,
    size,
    table,
)
from streamfreq.cli.stored import Stored
from streamfreq.cli.tokens import TokenText, shown
from streamfreq.cli.views import (
    Change,
    Row,
    changes,
    horizon_index,
    rate_per_second,
    top_rows,
    weight_summary,
)
from streamfreq.clock import SystemClock
from streamfreq.codec import Snapshot
from streamfreq.codec.snapshot import snapshot_metadata
from streamfreq.config import format_duration

_MOST_PARTITIONS = 20


def print_list(stored: Stored, *, as_json: bool) -> None:
    """Every kept version, oldest first."""
    infos = stored.store.infos()
    stale_since_ms = stored.store.stale_since_ms()
    if as_json:
        for info in infos:
            stale = stale_since_ms if info.latest else None
            print_json({**asdict(info), "stale_since_ms": stale})
        return
    if not infos:
        note(stored.missing(None))
        return
    now_ms = SystemClock().now_ms()
    columns = [
        Column("version"),
        Column("created", numeric=False),
        Column("age"),
        Column("as of", numeric=False),
        Column("size"),
        Column("", numeric=False),
    ]
    rows = []
    for info in infos:
        marks = [("latest", info.latest), ("pinned", info.pinned)]
        rows.append(
            (
                str(info.version),
                moment(info.created_at_ms),
                ago(info.created_at_ms, now_ms),
                moment(info.as_of_ms),
                size(info.size_bytes),
                ", ".join(name for name, is_so in marks if is_so),
            )
        )
    click.echo(table(columns, rows))
    if stale_since_ms is not None:
        click.echo(f"the latest is stale: no live stream behind it since {moment(stale_since_ms)}")


def print_show(snapshot: Snapshot, *, as_json: bool) -> None:
    """What a snapshot counts."""
    weights = weight_summary(snapshot)
    horizons = _horizons(snapshot)
    if as_json:
        metadata = snapshot_metadata(snapshot)
        metadata.pop("labels")
        print_json({**metadata, "horizons": horizons, "weights": weights})
        return
    now_ms = SystemClock().now_ms()
    click.echo(
        fields(
            {
                "job": snapshot.job,
                "version": str(snapshot.version),
                "created": f"{moment(snapshot.created_at_ms)}, "
                f"{ago(snapshot.created_at_ms, now_ms)}",
                "as of": moment(snapshot.as_of_ms),
                "epoch": f"since {moment(snapshot.epoch)}" if snapshot.epoch else "-",
                "tokenizer": f"{snapshot.tokenizer_name}, {number(snapshot.vocab_size)} ids, "
                f"fingerprint {snapshot.tokenizer_fingerprint[:12]}",
                "written by": f"streamfreq {snapshot.streamfreq_version}".strip(),
            }
        )
    )
    click.echo()
    click.echo(_horizons_table(horizons))
    if weights:
        click.echo()
        click.echo(_weights_table(weights))
    if snapshot.offsets:
        click.echo()
        click.echo(_offsets_table(snapshot))
    for gap in snapshot.gaps:
        click.echo(
            f"gap: {gap.partition} offsets {number(gap.first)} to {number(gap.last - 1)} "
            "are not counted"
        )


def print_top(
    snapshot: Snapshot, wanted: str, top: int, text: TokenText, *, rising: bool, as_json: bool
) -> None:
    """The heaviest tokens of a horizon, or those that rise."""
    horizon = horizon_index(snapshot.half_lives_seconds, wanted)
    rows = top_rows(snapshot, horizon, top, text, rising=rising)
    half_life = format_duration(snapshot.half_lives_seconds[horizon])
    if as_json:
        for row in rows:
            print_json(_row_json(row, half_life))
        return
    longest = format_duration(max(snapshot.half_lives_seconds))
    compared = any(row.ratio is not None for row in rows)
    columns = [Column("rank"), Column("token", numeric=False), Column("id"), Column("count")]
    columns += [Column("share")]
    rated = any(row.rate is not None for row in rows)
    columns += [Column("per second")] if rated else []
    columns += [Column(f"against {longest}"), Column("rank change")] if compared else []
    columns += [Column(f"weight {name}") for name in snapshot.weights]
    cells = []
    for row in rows:
        line = [number(row.rank), shown(row.token, row.token_id), str(row.token_id)]
        line += [number(row.count), percent(row.share)]
        line += [number(row.rate)] if rated else []
        if compared:
            line += [f"x{number(row.ratio)}", rank_change(row.before, row.rank)]
        line += [f"{weight:.3f}" for weight in row.weights.values()]
        cells.append(line)
    if rising and not rows:
        note(
            f"nothing rises: {half_life} and {longest} hold the same shares "
            "(all horizons begin alike; give it time)"
        )
    what = "rising" if rising else "heaviest"
    click.echo(
        f"version {snapshot.version} of job {snapshot.job}, as of {moment(snapshot.as_of_ms)}: "
        f"{what} tokens, half-life {half_life}"
    )
    if cells:
        click.echo(table(columns, cells))


def print_diff(
    pair: Sequence[Snapshot], wanted: str, top: int, text: TokenText, *, as_json: bool
) -> None:
    """The tokens that rose and fell most from the first snapshot to the second."""
    a, b = pair
    risen, fallen = changes(a, b, wanted, top, text)
    if as_json:
        for kind, group in (("risen", risen), ("fallen", fallen)):
            for change in group:
                print_json({"change": kind, **_change_json(change)})
        return
    half_life = format_duration(b.half_lives_seconds[horizon_index(b.half_lives_seconds, wanted)])
    click.echo(
        f"from version {a.version} (as of {moment(a.as_of_ms)}) to version {b.version} "
        f"(as of {moment(b.as_of_ms)}), half-life {half_life}"
    )
    for title, group in (("risen", risen), ("fallen", fallen)):
        click.echo()
        click.echo(f"{title}:" if group else f"{title}: none")
        if group:
            click.echo(_changes_table(group))


def _changes_table(group: Sequence[Change]) -> str:
    columns = [
        Column("token", numeric=False),
        Column("id"),
        Column("share"),
        Column("count A"),
        Column("count B"),
        Column("share A"),
        Column("share B"),
        Column("rank"),
        Column("rank change"),
    ]
    rows = [
        (
            shown(change.token, change.token_id),
            str(change.token_id),
            f"x{number(change.ratio)}",
            number(change.count_a),
            number(change.count_b),
            percent(change.share_a),
            percent(change.share_b),
            number(change.rank_b),
            rank_change(change.rank_a, change.rank_b),
        )
        for change in group
    ]
    return table(columns, rows)


def _horizons(snapshot: Snapshot) -> list[dict[str, Any]]:
    return [
        {
            "half_life": format_duration(half_life),
            "tokens": float(tokens),
            "records": float(records),
            "tokens_per_second": rate_per_second(float(tokens), half_life),
            "records_per_second": rate_per_second(float(records), half_life),
            "different_tokens": int((counts_V > 0).sum()),
        }
        for half_life, tokens, records, counts_V in zip(
            snapshot.half_lives_seconds,
            snapshot.tokens_H,
            snapshot.records_H,
            snapshot.counts_HV,
            strict=True,
        )
    ]


def _horizons_table(horizons: Sequence[dict[str, Any]]) -> str:
    names = ("tokens", "records", "tokens_per_second", "records_per_second", "different_tokens")
    columns = [Column("half-life"), *(Column(name.replace("_", " ")) for name in names)]
    rows = [(row["half_life"], *(number(row[name]) for name in names)) for row in horizons]
    return table(columns, rows)


def _weights_table(weights: dict[str, dict[str, float]]) -> str:
    columns = [
        Column("weights", numeric=False),
        Column("smallest"),
        Column("mean over the stream"),
        Column("largest"),
        Column("effective sample"),
    ]
    rows = [
        (
            name,
            f"{item['min']:.3f}",
            f"{item['mean']:.3f}",
            f"{item['max']:.3f}",
            percent(item["effective"]),
        )
        for name, item in weights.items()
    ]
    return table(columns, rows)


def _offsets_table(snapshot: Snapshot) -> str:
    columns = [Column("partition", numeric=False), Column("counted below offset")]
    offsets = sorted(snapshot.offsets.items())
    rows = [(str(partition), number(offset)) for partition, offset in offsets[:_MOST_PARTITIONS]]
    if len(offsets) > _MOST_PARTITIONS:
        rows.append((f"and {len(offsets) - _MOST_PARTITIONS} more (--json shows all)", ""))
    return table(columns, rows)


def _row_json(row: Row, half_life: str) -> dict[str, Any]:
    return {
        "rank": row.rank,
        "id": row.token_id,
        "token": row.token,
        "half_life": half_life,
        "count": row.count,
        "share": row.share,
        "per_second": row.rate,
        "ratio": row.ratio,
        "rank_longest": row.before,
        "weights": row.weights,
    }


def _change_json(change: Change) -> dict[str, Any]:
    values = asdict(change)
    values["id"] = values.pop("token_id")
    return values
