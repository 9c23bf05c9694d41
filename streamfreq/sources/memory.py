"""Topics in this process, with the rebalances and mishaps of a broker at the test's command."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from streamfreq.errors import DataRefused, OffsetExpired, ServiceUnavailable
from streamfreq.records import NO_TIMESTAMP, RecordBatch, TopicPartition
from streamfreq.sources.base import AssignmentListener, StartAt
from streamfreq.sources.placement import Placement


@dataclass(slots=True)
class _Log:
    beginning: int = 0
    end: int = 0
    offsets: list[int] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)


class MemoryLog:
    """Partitions with their records, shared by any number of sources and threads.

    >>> log = MemoryLog()
    >>> log.append(TopicPartition("news", 0), b"rare words")
    0
    >>> log.end(TopicPartition("news", 0))
    1
    """

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, _Log] = {}
        self._topic_ids: dict[str, str] = {}
        self._next_id = itertools.count(1)
        self.changed = threading.Condition(threading.RLock())

    def append(
        self, partition: TopicPartition, value: bytes | None, timestamp_ms: int = NO_TIMESTAMP
    ) -> int:
        """Add a record; its offset."""
        with self.changed:
            log = self._logs.setdefault(partition, _Log())
            log.offsets.append(log.end)
            log.timestamps_ms.append(timestamp_ms)
            log.values.append(value)
            log.end += 1
            self.changed.notify_all()
            return log.end - 1

    def skip(self, partition: TopicPartition, count: int = 1) -> None:
        """Offsets without records, as control records and compaction leave them."""
        with self.changed:
            self._logs.setdefault(partition, _Log()).end += count
            self.changed.notify_all()

    def expire(self, partition: TopicPartition, below: int) -> None:
        """Forget the records below an offset."""
        with self.changed:
            log = self._logs[partition]
            gone = int(np.searchsorted(log.offsets, below))
            del log.offsets[:gone], log.timestamps_ms[:gone], log.values[:gone]
            log.beginning = below

    def remake(self, topic: str) -> None:
        """Delete the topic with all its records, and make another one of this name."""
        with self.changed:
            for partition in [key for key in self._logs if key.topic == topic]:
                del self._logs[partition]
            self._topic_ids.pop(topic, None)

    def topic_id(self, topic: str) -> str:
        """What tells this topic from another one of its name."""
        with self.changed:
            if topic not in self._topic_ids:
                self._topic_ids[topic] = f"memory-{next(self._next_id)}"
            return self._topic_ids[topic]

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has had a record in."""
        with self.changed:
            return sum(partition.topic == topic for partition in self._logs)

    def beginning(self, partition: TopicPartition) -> int:
        """The first offset that is still there."""
        with self.changed:
            return self._logs.setdefault(partition, _Log()).beginning

    def end(self, partition: TopicPartition) -> int:
        """The offset behind the last record."""
        with self.changed:
            return self._logs.setdefault(partition, _Log()).end

    def first_at(self, partition: TopicPartition, time_ms: int) -> int:
        """The offset of the first record at or after a time, or the end."""
        with self.changed:
            log = self._logs.setdefault(partition, _Log())
            pairs = zip(log.offsets, log.timestamps_ms, strict=True)
            return next((offset for offset, stamp in pairs if stamp >= time_ms), log.end)

    def read(self, partition: TopicPartition, offset: int, limit: int) -> RecordBatch:
        """Up to `limit` records from `offset` on."""
        with self.changed:
            log = self._logs.setdefault(partition, _Log())
            first = int(np.searchsorted(log.offsets, offset))
            last = min(first + limit, len(log.offsets))
            return RecordBatch(
                partition,
                np.array(log.offsets[first:last], np.int64),
                np.array(log.timestamps_ms[first:last], np.int64),
                log.values[first:last],
                log.end if last == len(log.offsets) else log.offsets[last],
                self.topic_id(partition.topic),
            )


class MemorySource:
    """The port Source over a MemoryLog; see `streamfreq.sources.base` for the promises.

    The test plays the group: `assign`, `revoke` and `lose` take effect in the next `poll`; while
    `away` is true the service can't be reached. `reported` is what `report_position` was told.
    """

    def __init__(
        self,
        log: MemoryLog,
        assigned: Sequence[TopicPartition] = (),
        expired_offset: str = "earliest",
        max_poll_records: int = 10_000,
    ) -> None:
        self._log = log
        self._expired_offset = expired_offset
        self._max_poll_records = max_poll_records
        self._listener: AssignmentListener | None = None
        self._placement = Placement()
        self._paused: set[TopicPartition] = set()
        self._joined = False
        self._topic_ids: dict[str, str] = {}
        self._events: list[tuple[str, list[TopicPartition]]] = []
        self.away = False
        self.reported: dict[TopicPartition, int] = {}
        if assigned:
            self.assign(assigned)

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Hand out more partitions."""
        self._events.append(("assign", sorted(partitions)))

    def revoke(self, partitions: Sequence[TopicPartition]) -> None:
        """Take partitions away in order."""
        self._events.append(("revoke", sorted(partitions)))

    def lose(self, partitions: Sequence[TopicPartition]) -> None:
        """Take partitions away after the fact."""
        self._events.append(("lose", sorted(partitions)))

    def open(self, listener: AssignmentListener) -> None:
        """Raises ServiceUnavailable while `away`."""
        self._raise_if_away()
        self._listener = listener

    def poll(self, timeout_ms: int) -> list[RecordBatch]:
        """Batches of the assigned partitions, or nothing after `timeout_ms`."""
        self._raise_if_away()
        while self._events:
            kind, partitions = self._events.pop(0)
            self._rebalance(kind, partitions)
        self._place()
        batches = self._read()
        if not batches:
            with self._log.changed:
                self._log.changed.wait(timeout_ms / 1000)
            batches = self._read()
        return batches

    def seek(self, partition: TopicPartition, start: StartAt) -> None:
        """Read on from `start`; nothing happens for a partition that is not ours."""
        if self._placement.want(partition, start):
            self._place()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Hold these partitions until `resume`, or until they are assigned anew."""
        self._paused |= self._placement.assigned.intersection(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Undo `pause`."""
        self._paused.difference_update(partitions)

    def end_offsets(self) -> Mapping[TopicPartition, int] | None:
        """The end of each assigned partition."""
        if not self._joined or self.away or not self._placement.settled:
            return None
        return {partition: self._log.end(partition) for partition in self._placement.assigned}

    def report_position(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Remember it in `reported`."""
        self.reported |= offsets

    def close(self) -> None:
        """Give everything back; the listener hears `on_revoked` before."""
        if self._listener is not None:
            self._rebalance("revoke", sorted(self._placement.assigned))
        self._listener = None

    @property
    def _told(self) -> AssignmentListener:
        if self._listener is None:
            raise RuntimeError("the memory source is not open")
        return self._listener

    def _raise_if_away(self) -> None:
        if self.away:
            raise ServiceUnavailable("the memory log is away; set away = False")

    def _rebalance(self, kind: str, partitions: list[TopicPartition]) -> None:
        if kind == "assign":
            self._joined = True
            self._placement.fresh |= set(partitions) - self._placement.assigned
            return
        known = self._placement.told(partitions)
        try:
            if known and kind == "revoke":
                self._told.on_revoked(known)
            elif known:
                self._told.on_lost(known)
        finally:
            self._placement.forget(partitions)
            self._paused.difference_update(partitions)
            self._joined = bool(self._placement.assigned)

    def _place(self) -> None:
        self._placement.ask(self._told)
        for partition in self._placement.starts:
            self._topic_id(partition.topic)
        self._placement.place(
            {
                partition: self._resolve(partition, start)
                for partition, start in self._placement.starts.items()
            }
        )

    def _resolve(self, partition: TopicPartition, start: StartAt) -> int:
        if start.offset is not None:
            return start.offset
        if start.time_ms is not None:
            return self._log.first_at(partition, start.time_ms)
        ends = {"earliest": self._log.beginning, "latest": self._log.end}
        return ends[str(start.policy)](partition)

    def _read(self) -> list[RecordBatch]:
        batches = [
            RecordBatch.empty(
                partition,
                offset,
                self._topic_id(partition.topic),
                self._log.partition_count(partition.topic),
            )
            for partition, offset in self._placement.tell()
        ]
        left = self._max_poll_records
        for partition, offset in list(self._placement.next_offsets.items()):
            if partition in self._paused or left <= 0:
                continue
            self._raise_if_remade(self._log.topic_id(partition.topic), partition.topic)
            if not self._log.beginning(partition) <= offset <= self._log.end(partition):
                offset = self._out_of_range(partition, offset)
            batch = self._log.read(partition, offset, left)
            self._raise_if_remade(batch.topic_id, partition.topic)
            if self._placement.moved(partition, batch.next_offset):
                batches.append(batch)
                left -= len(batch)
        return batches

    def _topic_id(self, topic: str) -> str:
        return self._topic_ids.setdefault(topic, self._log.topic_id(topic))

    def _raise_if_remade(self, topic_id: str, topic: str) -> None:
        if topic_id != self._topic_id(topic):
            raise DataRefused(f"topic {topic} was deleted and made again while it was read")

    def _out_of_range(self, partition: TopicPartition, offset: int) -> int:
        beginning, end = self._log.beginning(partition), self._log.end(partition)
        if offset > end:
            raise DataRefused(f"{partition}: the next offset {offset} is beyond the end ({end})")
        if self._expired_offset == "fail":
            raise OffsetExpired(f"{partition}: offset {offset} is gone, it begins at {beginning}")
        onwards = beginning if self._expired_offset == "earliest" else end
        self._told.on_gap(partition, offset, onwards)
        return onwards
