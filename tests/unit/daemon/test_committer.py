"""Laws of committing: bounded when the group waits, in turns, and lag tools are told."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import numpy as np

from streamfreq.checkpoints.memory import MemoryCheckpointStore
from streamfreq.clock import ManualClock
from streamfreq.codec import CheckpointUpdate
from streamfreq.counting import Counters
from streamfreq.daemon.committer import Committer
from streamfreq.partition import Partition
from streamfreq.records import RecordBatch, TokenBatch, TopicPartition
from streamfreq.telemetry import Health, Metrics
from tests.unit.daemon.test_pipeline import Letters

PARTITIONS = [TopicPartition("news", number) for number in range(6)]


class SlowStore(MemoryCheckpointStore):
    """Does something at each commit: passes the time, or waits for somebody."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__("job")
        self.meanwhile = meanwhile

    def commit(self, update: CheckpointUpdate) -> None:
        self.meanwhile()
        super().commit(update)


class Bench:
    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.clock = ManualClock(1_000_000)
        self.store = SlowStore(meanwhile)
        self.metrics = Metrics("job", self.clock)
        health = Health(clock=self.clock)
        self.committer = Committer(self.store, Letters(), None, self.metrics, health, self.clock)
        self.partitions = [
            Partition(key, Counters((math.inf,), 8), "letters") for key in PARTITIONS
        ]
        for item in self.partitions:
            self.count(item, 0)

    def count(self, item: Partition, offset: int) -> None:
        tokens = TokenBatch(np.array([1], np.int32), np.array([1], np.int64))
        offsets_R = np.array([offset])
        batch = RecordBatch(item.partition, offsets_R, np.array([1_000]), [b"a"], offset + 1)
        item.count(tokens, np.array([1_000], np.int64), batch)


def test_with_a_limit_nothing_is_begun_behind_it_and_nothing_is_lost() -> None:
    bench = Bench()
    bench.store.meanwhile = lambda: bench.clock.advance(2)
    assert not bench.committer.commit(bench.partitions, limit_seconds=5)
    assert len(bench.store.revisions()) == 3
    assert [item.dirty for item in bench.partitions] == [False] * 3 + [True] * 3
    assert bench.committer.commit(bench.partitions)
    assert len(bench.store.revisions()) == 6


def test_a_round_makes_way_for_a_commit_that_the_group_waits_for() -> None:
    bench = Bench()
    begun, order = threading.Event(), []

    def meanwhile() -> None:
        order.append(threading.current_thread().name)
        if order == ["round"]:
            begun.set()
            while not bench.committer._hurried:
                threading.Event().wait(0.01)

    bench.store.meanwhile = meanwhile
    safe: list[bool] = []
    work = threading.Thread(
        target=lambda: safe.append(bench.committer.commit(bench.partitions)), name="round"
    )
    work.start()
    assert begun.wait(10)
    leaving = bench.partitions[4:]
    assert bench.committer.commit(leaving, limit_seconds=30)
    work.join(10)
    assert safe == [False]
    assert order == ["round", "MainThread", "MainThread"]
    assert not any(item.dirty for item in leaving)
    assert bench.committer.commit(bench.partitions)
    assert {item.next_offset for item in bench.partitions} == {1}
    assert len(bench.store.revisions()) == 6


def test_lag_tools_hear_of_what_is_committed_and_of_what_is_restored() -> None:
    bench = Bench()
    bench.committer.commit(bench.partitions[:1])
    bench.committer.restored(PARTITIONS[5], 77)
    assert bench.committer.take_positions() == {PARTITIONS[0]: 1, PARTITIONS[5]: 77}
    assert bench.committer.take_positions() == {}


def test_a_loss_is_counted() -> None:
    bench = Bench()
    bench.committer.commit(bench.partitions)
    bench.store.delete(PARTITIONS[2])
    bench.committer.commit(bench.partitions)
    assert bench.metrics.value("streamfreq_checkpoint_losses_total") == 1
    assert len(bench.store.revisions()) == 6
