"""Whatever happens to workers and partitions, every record counts exactly once.

A state machine of workers without threads: they poll, count, commit and publish, crash, hand
partitions over in order, or lose them without noticing (zombies); the store fails before or behind
a write, goes back to an older state, or loses everything.
"""

from __future__ import annotations

import itertools
import math
import string
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streamfreq.checkpoints.memory import MemoryCheckpointStore
from streamfreq.clock import ManualClock
from streamfreq.codec import NO_REVISION, CheckpointUpdate, Floor, Revision, Snapshot
from streamfreq.config import CountingConfig, SnapshotsConfig, TextConfig, ValueConfig
from streamfreq.counting import EventTimes
from streamfreq.daemon.assignment import Assignment, CountersSpec, Told
from streamfreq.daemon.committer import Committer
from streamfreq.daemon.pipeline import Tokenization
from streamfreq.daemon.worker import BatchCounter
from streamfreq.errors import ServiceUnavailable
from streamfreq.publisher import Publisher, Recipe
from streamfreq.records import TopicPartition
from streamfreq.snapshots.memory import (
    MemoryPublisherLease,
    MemorySnapshots,
    MemorySnapshotStore,
)
from streamfreq.snapshots.reader import SnapshotReader
from streamfreq.sources.base import StartAt
from streamfreq.sources.memory import MemoryLog, MemorySource
from streamfreq.telemetry import Health, Metrics
from streamfreq.text import TextPipeline
from tests.oracle import assert_close, recount
from tests.unit.daemon.test_pipeline import Letters

PARTITIONS = [TopicPartition("news", n) for n in range(3)]
WORKERS = 2
HALF_LIVES = (60.0, math.inf)
START_MS = 1_700_000_000_000
TEXTS = st.text("abcdefghij", min_size=1, max_size=4)
NOT_SEEN: tuple[Revision, int] = (NO_REVISION, 0)


class FlakyStore(MemoryCheckpointStore):
    """Fails the next call when told to: before the write, or behind it."""

    def __init__(self) -> None:
        super().__init__("job")
        self.fails: str | None = None

    def commit(self, update: CheckpointUpdate) -> None:
        fails, self.fails = self.fails, None
        if fails == "before":
            raise ServiceUnavailable("away")
        super().commit(update)
        if fails == "behind":
            raise ServiceUnavailable("no answer")


class Worker:
    """A daemon without its threads."""

    def __init__(self, name: str, log: MemoryLog, stores: Stores, clock: ManualClock) -> None:
        letters = Letters()
        metrics, health = Metrics("job", clock), Health(clock=clock)
        store = stores.checkpoints
        self.source = MemorySource(log, max_poll_records=3)
        self.committer = Committer(store, letters, None, metrics, health, clock)
        spec = CountersSpec(HALF_LIVES, letters.vocab_size, True, "cpu", 1, "letters")
        self.assignment = Assignment(
            spec,
            store,
            lambda: StartAt(policy="earliest"),
            Told(self.committer.commit, self.committer.restored, metrics.gap, lambda: None),
            clock,
        )
        tokenization = Tokenization(TextPipeline(ValueConfig(), TextConfig()), letters, "skip")
        self.counter = BatchCounter(tokenization, EventTimes(CountingConfig()), clock, metrics)
        self.publisher = Publisher(
            Recipe("job", "letters", "letters", {}),
            SnapshotsConfig(),
            store,
            stores.snapshots,
            MemoryPublisherLease(stores.kept, name, 15, clock),
            clock,
        )
        self.source.open(self.assignment)

    def poll(self) -> None:
        if self.assignment.collect_conflicts() or self.assignment.unloaded:
            for partition, start in self.assignment.load_pending().items():
                self.source.seek(partition, start)
        batches = self.source.poll(0)
        pairs = [(self.assignment.get(batch.partition), batch) for batch in batches]
        self.counter.count(
            self.counter.tokenize([(owner, batch) for owner, batch in pairs if owner is not None])
        )

    def commit(self) -> None:
        self.committer.commit(self.assignment.current())


class Stores:
    """The store's server: checkpoints and snapshots together, which a restart may set back."""

    def __init__(self) -> None:
        self.checkpoints = FlakyStore()
        self.kept = MemorySnapshots()
        self.snapshots = MemorySnapshotStore("job", 3, self.kept)

    def saved(self) -> tuple[dict[Any, Any], dict[str, Any]]:
        kept = {name: getattr(self.kept, name) for name in ("latest", "floor", "fence")}
        return dict(self.checkpoints._kept.entries), {**kept, "kept": dict(self.kept.kept)}

    def set_back(self, saved: tuple[dict[Any, Any], dict[str, Any]]) -> None:
        entries, fields = saved
        self.checkpoints._kept.entries.clear()
        self.checkpoints._kept.entries.update(entries)
        for name, value in fields.items():
            setattr(self.kept, name, dict(value) if name == "kept" else value)


class ExactlyOnce(RuleBasedStateMachine):
    """`owner` is what the group believes; a zombie believes otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(START_MS)
        self.log = MemoryLog()
        self.stores = Stores()
        self.nothing = self.stores.saved()
        self.backup = self.nothing
        self.seen: dict[TopicPartition, tuple[int, int]] = {}
        self.records: dict[TopicPartition, list[tuple[list[int], int]]] = {
            partition: [] for partition in PARTITIONS
        }
        self.names = itertools.count()
        self.workers = [self.new_worker() for _ in range(WORKERS)]
        self.reader = SnapshotReader(self.stores.snapshots, "letters")
        self.last: Snapshot | None = None
        self.knows: set[int] = set()
        self.owner = dict.fromkeys(PARTITIONS, 0)
        self.workers[0].source.assign(PARTITIONS)
        for partition in PARTITIONS:
            # So many different ids that a checkpoint is mostly written as changes.
            self.append(partition, string.ascii_letters, 0)

    def new_worker(self) -> Worker:
        return Worker(f"worker {next(self.names)}", self.log, self.stores, self.clock)

    @rule(
        partition=st.sampled_from(PARTITIONS),
        text=TEXTS,
        age_seconds=st.integers(0, 400),
    )
    def append(self, partition: TopicPartition, text: str, age_seconds: int) -> None:
        self.clock.advance(1)
        stamp = self.clock.now_ms() - age_seconds * 1000
        self.log.append(partition, text.encode(), stamp)
        self.records[partition].append(([ord(letter) for letter in text], stamp))

    @rule(worker=st.integers(0, WORKERS - 1))
    def poll(self, worker: int) -> None:
        self.workers[worker].poll()

    @rule(worker=st.integers(0, WORKERS - 1))
    def commit(self, worker: int) -> None:
        self.workers[worker].commit()

    @rule(worker=st.integers(0, WORKERS - 1), seconds=st.sampled_from([1, 20]))
    def publish(self, worker: int, seconds: int) -> None:
        """What is published counts exactly the records below its offsets, and takes back nothing.

        Only when everybody who knew of a snapshot is gone, and the store has lost it, may another
        one take it back: the reader holds on to it then.
        """
        self.clock.advance(seconds)
        for _ in range(3):
            for other in (worker, *range(WORKERS)):
                self.workers[other].publisher.keep_lease()
            self.clock.advance(1)
        snapshot = self.workers[worker].publisher.publish()
        if snapshot is not None:
            self.check_counts(snapshot)
            if self.knows:
                require_forward(self.last, snapshot)
            self.last, self.knows = snapshot, {worker}
        for other in range(WORKERS):
            self.workers[other].publisher.keep_lease()
        if self.last is not None and self.stores.snapshots.floor() == Floor.of(self.last):
            self.knows = set(range(WORKERS))
        before = self.reader.snapshot
        if self.reader.refresh():
            assert self.reader.snapshot is not None
            require_forward(before, self.reader.snapshot)

    def check_counts(self, snapshot: Snapshot) -> None:
        below = [
            record
            for partition, offset in snapshot.offsets.items()
            for record in self.records[partition][:offset]
        ]
        expected_HV, documents_HV = recount(
            below, HALF_LIVES, snapshot.as_of_ms, Letters.vocab_size
        )
        np.testing.assert_array_equal(snapshot.counts_HV[1], expected_HV[1])
        assert_close(snapshot.counts_HV, expected_HV)
        assert snapshot.documents_HV is not None
        assert_close(snapshot.documents_HV, documents_HV)
        assert not snapshot.gaps

    @rule(
        partition=st.sampled_from(PARTITIONS),
        text=TEXTS,
        everything=st.booleans(),
        who_dies=st.sampled_from(["nobody", "the owner", "the publisher", "both"]),
    )
    def lose_what_was_just_published(
        self, partition: TopicPartition, text: str, everything: bool, who_dies: str
    ) -> None:
        """The worst moment for the store to go back: readers have got what it then lacks."""
        owner = self.owner[partition]
        publisher = (owner + 1) % WORKERS
        self.work(owner)
        self.back_up_the_store()
        self.append(partition, text, 0)
        self.poll(owner)
        self.commit(owner)
        self.publish(publisher, 20)
        self.set_the_store_back(everything)
        if who_dies in ("the owner", "both"):
            self.crash(owner)
        if who_dies in ("the publisher", "both"):
            self.crash(publisher)
        self.publish(publisher, 20)
        self.work(owner)

    @rule(worker=st.integers(0, WORKERS - 1))
    def work(self, worker: int) -> None:
        """A while in which nothing happens."""
        for _ in range(2):
            self.poll(worker)
        self.commit(worker)
        self.publish(worker, 20)

    @rule(
        partition=st.sampled_from(PARTITIONS),
        text=TEXTS,
        fails=st.sampled_from(["before", "behind"]),
    )
    def count_around_a_failed_write(self, partition: TopicPartition, text: str, fails: str) -> None:
        owner = self.owner[partition]
        self.work(owner)
        self.append(partition, text, 0)
        self.poll(owner)
        self.break_the_next_write(fails)
        self.commit(owner)
        self.append(partition, text[:1], 0)
        self.work(owner)

    @rule(fails=st.sampled_from(["before", "behind"]))
    def break_the_next_write(self, fails: str) -> None:
        self.stores.checkpoints.fails = fails

    @rule()
    def back_up_the_store(self) -> None:
        self.backup = self.stores.saved()

    @rule(everything=st.booleans())
    def set_the_store_back(self, everything: bool) -> None:
        """Its last writes are gone, or all of them."""
        if everything:
            self.backup = self.nothing
        self.stores.set_back(self.backup)
        self.seen.clear()

    @rule(partition=st.sampled_from(PARTITIONS), orderly=st.booleans())
    def move(self, partition: TopicPartition, orderly: bool) -> None:
        """To the other worker; the old one hears of it, or goes on as a zombie."""
        old = self.owner[partition]
        new = (old + 1) % WORKERS
        if orderly:
            self.workers[old].source.revoke([partition])
            self.workers[old].poll()
        self.workers[new].source.assign([partition])
        self.owner[partition] = new

    @rule(worker=st.integers(0, WORKERS - 1))
    def a_zombie_hears_what_it_lost(self, worker: int) -> None:
        lost = [partition for partition, owner in self.owner.items() if owner != worker]
        self.workers[worker].source.lose(lost)

    @rule(worker=st.integers(0, WORKERS - 1))
    def crash(self, worker: int) -> None:
        """What is not committed is gone; a new process gets the partitions."""
        self.workers[worker] = self.new_worker()
        self.knows.discard(worker)
        ours = [partition for partition, owner in self.owner.items() if owner == worker]
        self.workers[worker].source.assign(ours)

    @invariant()
    def what_is_committed_is_never_taken_back(self) -> None:
        store = self.stores.checkpoints
        for partition, revision in store.revisions().items():
            if self.seen.get(partition, NOT_SEEN)[0] == revision:
                continue
            checkpoint = store.load(partition)
            assert checkpoint is not None
            before, next_offset = self.seen.get(partition, NOT_SEEN)
            assert checkpoint.version > before.version
            assert checkpoint.next_offset >= next_offset
            counted = sum(len(ids) for ids, _ in self.records[partition][: checkpoint.next_offset])
            assert checkpoint.state.tokens_H[1] == counted
            assert checkpoint.state.counts_HV[1].sum() == counted
            self.seen[partition] = (checkpoint.revision, checkpoint.next_offset)

    def teardown(self) -> None:
        """Let the owners catch up, then compare with the plain recount."""
        self.stores.checkpoints.fails = None
        for number, worker in enumerate(self.workers):
            others = [key for key, owner in self.owner.items() if owner != number]
            worker.source.lose(others)
        everything = sum(map(len, self.records.values()))
        for _ in range(everything + 8):
            for worker in self.workers:
                worker.poll()
                worker.commit()
        if not everything:
            return
        self.publish(0, 30)
        snapshot = self.stores.snapshots.load()
        assert snapshot is not None
        self.check_counts(snapshot)
        assert all(
            snapshot.offsets.get(key, 0) == self.log.end(key) == len(self.records[key])
            for key in PARTITIONS
        )


def require_forward(before: Snapshot | None, after: Snapshot) -> None:
    """Within an epoch nothing is taken back."""
    if before is None or before.epoch != after.epoch:
        return
    assert after.version > before.version
    assert after.as_of_ms >= before.as_of_ms
    assert all(after.offsets.get(key, 0) >= offset for key, offset in before.offsets.items())


TestExactlyOnce = ExactlyOnce.TestCase
TestExactlyOnce.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
