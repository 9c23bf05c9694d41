"""A store that goes back to an older state, or to none, gets everything again, and it is said."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest

from streamfreq.checkpoints.memory import MemoryCheckpointStore
from streamfreq.clock import ManualClock
from streamfreq.codec import Floor
from streamfreq.config import SnapshotsConfig
from streamfreq.counting import Counters
from streamfreq.daemon.committer import Committer
from streamfreq.partition import Partition
from streamfreq.publisher import Publisher, Recipe
from streamfreq.records import RecordBatch, TokenBatch, TopicPartition
from streamfreq.snapshots.memory import (
    MemoryPublisherLease,
    MemorySnapshots,
    MemorySnapshotStore,
)
from streamfreq.telemetry import Health, Metrics
from tests.conformance.values import versions
from tests.unit.daemon.test_pipeline import Letters

BUSY, IDLE = TopicPartition("news", 0), TopicPartition("news", 1)


class Bench:
    """Two partitions on memory stores, one of which gets no more records."""

    def __init__(self) -> None:
        clock = ManualClock(1_000_000)
        self.store = MemoryCheckpointStore("job")
        self.kept = MemorySnapshots()
        self.snapshots = MemorySnapshotStore("job", 10, self.kept)
        self.committer = Committer(
            self.store, Letters(), None, Metrics("job", clock), Health(clock=clock), clock
        )
        self.publisher = Publisher(
            Recipe("job", "letters", "letters", {}),
            SnapshotsConfig(),
            self.store,
            self.snapshots,
            MemoryPublisherLease(self.kept, "one", 15, clock),
            clock,
        )
        self.partitions = [
            Partition(key, Counters((math.inf,), 8), "letters") for key in (BUSY, IDLE)
        ]
        for item in self.partitions:
            self.count(item, 0)

    def count(self, item: Partition, offset: int) -> None:
        tokens = TokenBatch(np.array([1], np.int32), np.array([1], np.int64))
        batch = RecordBatch(
            item.partition, np.array([offset]), np.array([1_000]), [b"a"], offset + 1
        )
        item.count(tokens, np.array([1_000], np.int64), batch)

    def lose_everything(self) -> None:
        self.lose_the_checkpoints()
        self.kept.kept.clear()
        self.kept.latest, self.kept.floor = 0, Floor()

    def lose_the_checkpoints(self) -> None:
        for partition in self.store.revisions():
            self.store.delete(partition)


def test_idle_partitions_come_back_too_and_the_versions_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.committer.commit(bench.partitions)
    first = bench.publisher.publish()
    assert first is not None
    bench.lose_everything()
    bench.count(bench.partitions[0], 1)
    with caplog.at_level(logging.ERROR):
        assert bench.committer.commit(bench.partitions)
        again = bench.publisher.publish()
    assert again is not None
    assert again.version == first.version + 1
    assert dict(again.offsets) == {BUSY: 2, IDLE: 1}
    assert again.counts_HV[0, 1] == 3
    assert sum("the store lost" in message for message in caplog.messages) == 3


def test_without_new_records_too() -> None:
    bench = Bench()
    bench.committer.commit(bench.partitions)
    first = bench.publisher.publish()
    assert first is not None
    bench.lose_everything()
    bench.committer.commit(bench.partitions)
    again = bench.publisher.publish()
    assert again is not None
    assert again.version > first.version
    assert dict(again.offsets) == dict(first.offsets)
    assert bench.publisher.publish() is None


def test_the_same_version_of_another_history_is_read_anew() -> None:
    """Version 1 again, but with more in it: the publisher must not take it for the one it read."""
    bench = Bench()
    bench.committer.commit(bench.partitions)
    bench.publisher.publish()
    bench.lose_the_checkpoints()
    bench.count(bench.partitions[0], 1)
    bench.committer.commit(bench.partitions)
    assert versions(bench.store) == {BUSY: 1, IDLE: 1}
    again = bench.publisher.publish()
    assert again is not None
    assert again.offsets[BUSY] == 2


def test_an_own_commit_is_no_loss(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    for offset in range(1, 5):
        bench.committer.commit(bench.partitions)
        bench.count(bench.partitions[0], offset)
    assert not caplog.messages
    assert versions(bench.store) == {BUSY: 4, IDLE: 1}
