"""What the checkpoint commands do and print."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from streamfreq.cli.output import Column, ago, moment, note, number, print_json, table
from streamfreq.cli.stored import Stored
from streamfreq.clock import SystemClock
from streamfreq.errors import CheckpointRefused, UsageError
from streamfreq.records import TopicPartition

if TYPE_CHECKING:
    from streamfreq.codec import Checkpoint

_ID_CHARACTERS = 12


def print_list(stored: Stored, *, as_json: bool) -> None:
    """One line for each partition; raises CheckpointRefused behind the list when any is damaged."""
    store = stored.checkpoints
    rows: list[Sequence[str]] = []
    damaged: list[str] = []
    now_ms = SystemClock().now_ms()
    for partition in sorted(store.revisions()):
        try:
            checkpoint = store.load(partition)
        except CheckpointRefused as error:
            damaged.append(str(error))
            if as_json:
                print_json({**_name(partition), "damaged": str(error)})
            continue
        if checkpoint is None:  # deleted in between
            continue
        if as_json:
            print_json(_as_json(checkpoint))
        rows.append(_row(checkpoint, now_ms))
    if not as_json and rows:
        click.echo(table(_COLUMNS, rows))
    if not rows and not damaged:
        note(f"{stored.where} has no checkpoint")
    if damaged:
        raise CheckpointRefused("\n".join(damaged))


_COLUMNS = [
    Column("topic", numeric=False),
    *map(Column, ("partition", "version", "next offset", "tokens", "changes")),
    Column("counted to", numeric=False),
    Column("written"),
    Column("gaps"),
    Column("topic id", numeric=False),
]


def _row(checkpoint: Checkpoint, now_ms: int) -> Sequence[str]:
    return (
        checkpoint.partition.topic,
        str(checkpoint.partition.partition),
        str(checkpoint.version),
        number(checkpoint.next_offset),
        number(_tokens(checkpoint)),
        str(checkpoint.chain.changes),
        moment(checkpoint.state.watermark_ms),
        ago(checkpoint.created_at_ms, now_ms),
        str(len(checkpoint.gaps)),
        checkpoint.topic_id[:_ID_CHARACTERS] or "-",
    )


def _as_json(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        **_name(checkpoint.partition),
        "topic_id": checkpoint.topic_id,
        "version": checkpoint.version,
        "next_offset": checkpoint.next_offset,
        "tokens": _tokens(checkpoint),
        "watermark_ms": checkpoint.state.watermark_ms,
        "created_at_ms": checkpoint.created_at_ms,
        **asdict(checkpoint.chain),
        "gaps": [[gap.first, gap.last] for gap in checkpoint.gaps],
        "tokenizer_fingerprint": checkpoint.tokenizer_fingerprint,
    }


def _name(partition: TopicPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}


def _tokens(checkpoint: Checkpoint) -> float:
    """Tokens of the longest half-life, as of the latest record counted."""
    from streamfreq.counting import decay_to

    state = checkpoint.state
    longest = max(range(len(state.half_lives_seconds)), key=state.half_lives_seconds.__getitem__)
    return float(decay_to(state, max(0, state.watermark_ms)).tokens_H[longest])


def named(
    stored: Stored, topic: str | None, partitions: Collection[int]
) -> Sequence[TopicPartition]:
    """The partitions that are meant; raises UsageError when there is none of that name.

    Those that readers have seen counted are there too, even when their checkpoints are gone: only
    the end of the epoch lets snapshots go on without them.
    """
    there = sorted({*stored.checkpoints.revisions(), *stored.store.floor().offsets})
    if not there:
        raise UsageError(f"{stored.where} has no checkpoint; is --job right?")
    if topic is None:
        return there
    of_topic = [item for item in there if item.topic == topic]
    if not of_topic:
        topics = ", ".join(sorted({item.topic for item in there}))
        raise UsageError(f"{stored.where} has no checkpoint of topic {topic}; there are {topics}")
    if not partitions:
        return of_topic
    missing = sorted(set(partitions) - {item.partition for item in of_topic})
    if missing:
        known = ", ".join(str(item.partition) for item in of_topic)
        raise UsageError(
            f"{stored.where} has no checkpoint of {topic} partition {missing[0]}; there are {known}"
        )
    return [item for item in of_topic if item.partition in partitions]


def delete_checkpoints(stored: Stored, wanted: Sequence[TopicPartition], *, as_json: bool) -> None:
    """Forget them.

    1. Take the publisher's lease, which a daemon that publishes holds.
    2. End the epoch of the snapshots: the next one may count less than the last.
    3. Delete the checkpoints, one after the other.
    4. Give the lease back.

    An end between any two leaves what a second run mends. Raises UsageError while a daemon holds
    the lease.
    """
    with stored.publishing(", and every other daemon of the job"):  # 1, 4
        stored.store.end_epoch()  # 2
        deleted = [item for item in wanted if stored.checkpoints.delete(item)]  # 3
        # Told before step 4: what is gone is gone, even when the lease can't be given back.
        if as_json:
            print_json({"job": stored.config.job, "deleted": [_name(item) for item in deleted]})
        elif deleted:
            names = " ".join(map(str, deleted))
            click.echo(f"forgot {len(deleted)} checkpoints of {stored.where}: {names}")
        else:
            click.echo(f"{stored.where} had no such checkpoint any more; a new epoch begins")
