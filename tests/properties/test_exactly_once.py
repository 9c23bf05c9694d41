"""Whatever happens to workers and partitions, every record counts exactly once.

A state machine of workers without threads: they poll, count and commit, crash, hand partitions over
in order, or lose them without noticing (zombies); the store fails before or behind a write.
"""

from __future__ import annotations

import math

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streamfreq.checkpoints.memory import MemoryCheckpointStore
from streamfreq.clock import ManualClock
from streamfreq.codec import Checkpoint
from streamfreq.config import CountingConfig, TextConfig, ValueConfig
from streamfreq.counting import EventTimes, decay_to, merge
from streamfreq.daemon.assignment import Assignment, CountersSpec
from streamfreq.daemon.committer import Committer
from streamfreq.daemon.pipeline import Tokenization
from streamfreq.daemon.worker import BatchCounter
from streamfreq.errors import ServiceUnavailable
from streamfreq.records import TopicPartition
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


class FlakyStore(MemoryCheckpointStore):
    """Fails the next call when told to: before the write, or behind it."""

    def __init__(self) -> None:
        super().__init__("job")
        self.fails: str | None = None

    def commit(self, checkpoint: Checkpoint) -> None:
        fails, self.fails = self.fails, None
        if fails == "before":
            raise ServiceUnavailable("away")
        super().commit(checkpoint)
        if fails == "behind":
            raise ServiceUnavailable("no answer")


class Worker:
    """A daemon without its threads."""

    def __init__(self, log: MemoryLog, store: MemoryCheckpointStore, clock: ManualClock) -> None:
        letters = Letters()
        metrics, health = Metrics("job", clock), Health(clock=clock)
        self.source = MemorySource(log, max_poll_records=3)
        self.committer = Committer(store, letters, None, metrics, health, clock)
        spec = CountersSpec(HALF_LIVES, letters.vocab_size, True, "cpu", 1, "letters")
        self.assignment = Assignment(
            spec, store, lambda: StartAt(policy="earliest"), self.committer.commit
        )
        tokenization = Tokenization(TextPipeline(ValueConfig(), TextConfig()), letters, "skip")
        self.counter = BatchCounter(tokenization, EventTimes(CountingConfig()), clock, metrics)
        self.source.open(self.assignment)

    def poll(self) -> None:
        if self.assignment.collect_conflicts() or self.assignment.unloaded:
            for partition, start in self.assignment.load_pending().items():
                self.source.seek(partition, start)
        batches = self.source.poll(0)
        pairs = [(self.assignment.get(batch.partition), batch) for batch in batches]
        self.counter.count([(owner, batch) for owner, batch in pairs if owner is not None])

    def commit(self) -> None:
        self.committer.commit(self.assignment.current())


class ExactlyOnce(RuleBasedStateMachine):
    """`owner` is what the group believes; a zombie believes otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(START_MS)
        self.log = MemoryLog()
        self.store = FlakyStore()
        self.seen: dict[TopicPartition, tuple[int, int]] = {}
        self.records: list[tuple[list[int], int]] = []
        self.workers = [self.new_worker() for _ in range(WORKERS)]
        self.owner = dict.fromkeys(PARTITIONS, 0)
        self.workers[0].source.assign(PARTITIONS)

    def new_worker(self) -> Worker:
        return Worker(self.log, self.store, self.clock)

    @rule(
        partition=st.sampled_from(PARTITIONS),
        text=st.text("abc", min_size=1, max_size=4),
        age_seconds=st.integers(0, 400),
    )
    def append(self, partition: TopicPartition, text: str, age_seconds: int) -> None:
        self.clock.advance(1)
        stamp = self.clock.now_ms() - age_seconds * 1000
        self.log.append(partition, text.encode(), stamp)
        self.records.append(([ord(letter) for letter in text], stamp))

    @rule(worker=st.integers(0, WORKERS - 1))
    def poll(self, worker: int) -> None:
        self.workers[worker].poll()

    @rule(worker=st.integers(0, WORKERS - 1))
    def commit(self, worker: int) -> None:
        self.workers[worker].commit()

    @rule(fails=st.sampled_from(["before", "behind"]))
    def break_the_next_write(self, fails: str) -> None:
        self.store.fails = fails

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
        ours = [partition for partition, owner in self.owner.items() if owner == worker]
        self.workers[worker].source.assign(ours)

    @invariant()
    def what_is_committed_is_never_taken_back(self) -> None:
        for partition in self.store.versions():
            checkpoint = self.store.load(partition)
            assert checkpoint is not None
            version, next_offset = self.seen.get(partition, (0, 0))
            assert checkpoint.version > version or (
                (checkpoint.version, checkpoint.next_offset) == (version, next_offset)
            )
            assert checkpoint.next_offset >= next_offset
            self.seen[partition] = (checkpoint.version, checkpoint.next_offset)

    def teardown(self) -> None:
        """Let the owners catch up, then compare with the plain recount."""
        self.store.fails = None
        for number, worker in enumerate(self.workers):
            others = [key for key, owner in self.owner.items() if owner != number]
            worker.source.lose(others)
        for _ in range(len(self.records) + 8):
            for worker in self.workers:
                worker.poll()
                worker.commit()
        stored = [self.store.load(partition) for partition in PARTITIONS]
        checkpoints = [checkpoint for checkpoint in stored if checkpoint is not None]
        if not self.records:
            return
        state = merge([checkpoint.state for checkpoint in checkpoints])
        counts = decay_to(state, state.watermark_ms)
        expected_HV, documents_HV = recount(
            self.records, HALF_LIVES, state.watermark_ms, Letters.vocab_size
        )
        np.testing.assert_array_equal(counts.counts_HV[1], expected_HV[1])
        assert counts.documents_HV is not None
        assert_close(counts.counts_HV, expected_HV)
        assert_close(counts.documents_HV, documents_HV)
        offsets = {item.partition: item.next_offset for item in checkpoints}
        assert all(offsets.get(key, 0) == self.log.end(key) for key in PARTITIONS)


TestExactlyOnce = ExactlyOnce.TestCase
TestExactlyOnce.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
