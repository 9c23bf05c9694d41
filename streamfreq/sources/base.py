"""The port to where records come from: partitions are handed out, records come in batches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from streamfreq.records import RecordBatch, TopicPartition


@dataclass(frozen=True, slots=True)
class StartAt:
    """Where to begin reading a partition: exactly one of the three kinds.

    `offset`: that offset (from a checkpoint). `time_ms`: the first record at or after that
    timestamp, or the end when there is none. `policy`: "earliest" or "latest".
    """

    offset: int | None = None
    time_ms: int | None = None
    policy: str | None = None

    def __str__(self) -> str:
        if self.offset is not None:
            return f"offset {self.offset}"
        return f"time {self.time_ms} ms" if self.time_ms is not None else str(self.policy)


class AssignmentListener(Protocol):
    """Told inside `poll` which partitions are ours. Each call is bounded in time."""

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, StartAt]:
        """These partitions are ours now; the answer says where to begin each.

        A partition that is not in the answer is held back until the listener's owner calls `seek`.
        """
        ...

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions go to another worker; the last moment to commit them."""
        ...

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions belong to somebody else already; nothing may be committed."""
        ...

    def on_gap(self, partition: TopicPartition, first: int, last: int) -> None:
        """The broker no longer has offsets `first` (inclusive) to `last` (exclusive)."""
        ...


class Source(Protocol):
    """Records from partitions. One thread calls it; rebalances happen inside `poll`.

    `poll` raises ServiceUnavailable while the service is away (call it again: the source retries
    with back-off), OffsetExpired when a next offset is gone and the policy says fail, DataRefused
    when a topic was deleted and made again meanwhile. What the listener raises comes out of
    `poll` too; partitions that `on_assigned` raised for are offered to it again by the next `poll`.
    """

    def open(self, listener: AssignmentListener) -> None:
        """Join the group (or open the files); assignments arrive in later polls."""
        ...

    def poll(self, timeout_ms: int) -> list[RecordBatch]:
        """Batches, in order for each partition; an empty list after `timeout_ms`.

        The first batch after each start of a partition is empty: it tells where reading begins,
        and of which topic, even when there is nothing to read. At most one more follows it, or
        else comes, for each partition.
        """
        ...

    def seek(self, partition: TopicPartition, start: StartAt) -> None:
        """Read on from `start`; batches that `poll` returned before stay as they are."""
        ...

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Return nothing for these partitions until `resume` or until they are assigned anew."""
        ...

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Undo `pause`."""
        ...

    def end_offsets(self) -> Mapping[TopicPartition, int] | None:
        """The offset behind the last record of each assigned partition.

        None while no assignment has arrived yet, while `poll` still has to tell where reading of
        a partition begins, or while the service can't say.
        """
        ...

    def report_position(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Tell the service how far the checkpoints are, for lag tools only; does not wait long."""
        ...

    def close(self) -> None:
        """Leave the group. Calls `on_revoked` for what is still assigned."""
        ...


FLUSH_TIMEOUT_SECONDS = 30.0
"""So long it may take to make dead letters safe when nobody waits for it."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be used, with the reason, as it goes aside."""

    partition: TopicPartition
    offset: int
    timestamp_ms: int
    value: bytes
    reason: str


class DeadLetters(Protocol):
    """Where records go that could not be used. At least once: a crash may repeat some."""

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """Take these letters; may buffer."""
        ...

    def flush(self, timeout_seconds: float = FLUSH_TIMEOUT_SECONDS) -> None:
        """Return when every letter taken is safe; raises ServiceUnavailable after the timeout.

        To connect, where that is needed, may take some seconds more.
        """
        ...

    def close(self) -> None:
        """Flush and let go of resources."""
        ...
