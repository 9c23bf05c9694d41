"""The sources behind one face for the laws: two partitions to fill, and a listener that records."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from streamfreq.clock import SystemClock
from streamfreq.config import FilesConfig, KafkaConfig
from streamfreq.records import NO_TIMESTAMP, RecordBatch, TopicPartition
from streamfreq.sources import Source, StartAt
from streamfreq.sources.files import FilesSource
from streamfreq.sources.kafka import KafkaSource
from streamfreq.sources.memory import MemoryLog, MemorySource
from tests.services.kafka import KafkaBroker

EARLIEST = StartAt(policy="earliest")
FAST = {
    "metadata_max_age_ms": 500,
    "heartbeat_interval_ms": 200,
    "fetch_max_wait_ms": 50,
    "reconnect_backoff_max_ms": 500,
}
DEADLINE_SECONDS = 30.0


class Recorder:
    """An AssignmentListener that says where to begin and remembers what it was told."""

    def __init__(
        self, start: StartAt = EARLIEST, starts: Mapping[TopicPartition, StartAt] | None = None
    ) -> None:
        self.start = start
        self.starts = dict(starts or {})
        self.left_out: set[TopicPartition] = set()
        self.events: list[tuple[str, list[TopicPartition]]] = []
        self.gaps: list[tuple[TopicPartition, int, int]] = []
        self.failing: Exception | None = None

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, StartAt]:
        self.events.append(("assigned", list(partitions)))
        if self.failing is not None:
            raise self.failing
        wanted = [partition for partition in partitions if partition not in self.left_out]
        return {partition: self.starts.get(partition, self.start) for partition in wanted}

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("revoked", list(partitions)))

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("lost", list(partitions)))

    def on_gap(self, partition: TopicPartition, first: int, last: int) -> None:
        self.gaps.append((partition, first, last))

    def told(self, kind: str) -> list[TopicPartition]:
        """All partitions of the events of a kind."""
        return sorted(p for event, partitions in self.events if event == kind for p in partitions)


class Rig(Protocol):
    """Two partitions, filled before the source is made."""

    first: TopicPartition
    second: TopicPartition

    def fill(
        self,
        partition: TopicPartition,
        values: Sequence[bytes],
        timestamps_ms: Sequence[int] | None = None,
    ) -> None: ...

    def source(self, **options: Any) -> Source: ...


class MemoryRig:
    """A MemoryLog."""

    def __init__(self) -> None:
        self.first, self.second = TopicPartition("news", 0), TopicPartition("news", 1)
        self.log = MemoryLog()

    def fill(
        self,
        partition: TopicPartition,
        values: Sequence[bytes | None],
        timestamps_ms: Sequence[int] | None = None,
    ) -> None:
        for row, value in enumerate(values):
            stamp = NO_TIMESTAMP if timestamps_ms is None else timestamps_ms[row]
            self.log.append(partition, value, stamp)

    def expire(self, partition: TopicPartition, below: int) -> None:
        self.log.expire(partition, below)

    def skip(self, partition: TopicPartition) -> None:
        self.log.skip(partition, 3)

    def remake(self) -> None:
        self.log.remake(self.first.topic)

    def source(self, **options: Any) -> Source:
        return MemorySource(self.log, [self.first, self.second], **options)


class FilesRig:
    """Two files."""

    def __init__(self, folder: Path) -> None:
        self.first = TopicPartition(str(folder / "a.txt"), 0)
        self.second = TopicPartition(str(folder / "b.txt"), 0)
        for partition in (self.first, self.second):
            Path(partition.topic).touch()

    def fill(
        self,
        partition: TopicPartition,
        values: Sequence[bytes],
        timestamps_ms: Sequence[int] | None = None,
    ) -> None:
        with open(partition.topic, "ab") as file:
            file.writelines(value + b"\n" for value in values)

    def source(self, **options: Any) -> Source:
        paths = [self.first.topic, self.second.topic]
        return FilesSource(FilesConfig(paths=paths, **options), SystemClock())


class KafkaRig:
    """A topic of two partitions on the session's broker."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        self.topic = broker.create_topic(f"law-{uuid.uuid4().hex[:12]}", 2)
        self.first, self.second = TopicPartition(self.topic, 0), TopicPartition(self.topic, 1)
        self.group = f"group-{uuid.uuid4().hex[:12]}"

    def fill(
        self,
        partition: TopicPartition,
        values: Sequence[bytes | None],
        timestamps_ms: Sequence[int] | None = None,
    ) -> None:
        self.broker.produce(self.topic, values, partition.partition, timestamps_ms)

    def expire(self, partition: TopicPartition, below: int) -> None:
        self.broker.delete_records(self.topic, {partition.partition: below})

    def skip(self, partition: TopicPartition) -> None:
        self.broker.produce_transaction(
            self.topic, [b"never", b"mind"], partition.partition, commit=False
        )

    def remake(self) -> None:
        self.broker.delete_topic(self.topic)
        self.broker.create_topic(self.topic, 2)

    def config(self, **options: Any) -> KafkaConfig:
        given = {
            "bootstrap_servers": [self.broker.bootstrap],
            "topics": [self.topic],
            "session_timeout_ms": 6_000,
            "options": FAST,
        }
        return KafkaConfig.model_validate(given | options)

    def source(self, **options: Any) -> KafkaSource:
        return KafkaSource(self.config(**options), self.group, SystemClock())


class Reader:
    """Polls a source and keeps what came, checking each batch."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.batches: list[RecordBatch] = []
        self.next_offsets: dict[TopicPartition, int] = {}

    def poll(self, timeout_ms: int = 100) -> list[RecordBatch]:
        batches = self.source.poll(timeout_ms)
        filled = [batch.partition for batch in batches if len(batch)]
        assert len(set(filled)) == len(filled)
        for batch in batches:
            assert len(batch.offsets_R) == len(batch.timestamps_ms_R) == len(batch.values)
            assert (batch.offsets_R[1:] > batch.offsets_R[:-1]).all()
            assert not len(batch) or batch.offsets_R[-1] < batch.next_offset
            self.next_offsets[batch.partition] = batch.next_offset
        self.batches += batches
        return batches

    def poll_until(self, reached: Mapping[TopicPartition, int]) -> None:
        """Poll until each partition's next offset is as given."""
        self.poll_for(lambda: all(self.next_offsets.get(p, -1) >= o for p, o in reached.items()))

    def poll_for(self, done: Callable[[], object]) -> None:
        """Poll until something is so."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not done():
            self.poll()
            assert time.monotonic() < deadline, f"not within the time; read {self.next_offsets}"

    def poll_times(self, times: int, timeout_ms: int = 50) -> None:
        for _ in range(times):
            self.poll(timeout_ms)

    def records(self, partition: TopicPartition) -> list[tuple[int, bytes | None]]:
        """Offset and value of each record that came, in the order of arrival."""
        return [
            (int(offset), value)
            for batch in self.batches
            if batch.partition == partition
            for offset, value in zip(batch.offsets_R, batch.values, strict=True)
        ]

    def topic_ids(self) -> set[str]:
        """The topic ids of all batches."""
        return {batch.topic_id for batch in self.batches}

    def values(self, partition: TopicPartition) -> list[bytes | None]:
        return [value for _, value in self.records(partition)]


def words(prefix: str, count: int) -> list[bytes]:
    """Values that differ."""
    return [f"{prefix} {row}".encode() for row in range(count)]
