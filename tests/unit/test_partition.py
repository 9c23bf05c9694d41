"""Laws of a partition: counters and next offset move together, and a commit is all or nothing."""

from __future__ import annotations

import numpy as np
import pytest

from streamfreq.checkpoints.memory import MemoryCheckpointStore
from streamfreq.codec import Checkpoint, Gap
from streamfreq.counting import Counters
from streamfreq.errors import CheckpointConflict, ServiceUnavailable
from streamfreq.partition import Partition, with_gap
from streamfreq.records import TokenBatch, TopicPartition

TP = TopicPartition("news", 0)
V = 8


def tokens(*ids: int) -> TokenBatch:
    return TokenBatch(np.array(ids, np.int32), np.array([len(ids)], np.int64))


def times(ms: int = 1_000) -> np.ndarray:
    return np.array([ms], np.int64)


def fresh(checkpoint: Checkpoint | None = None) -> Partition:
    counters = (
        Counters((float("inf"),), V)
        if checkpoint is None
        else Counters.from_state(checkpoint.state)
    )
    return Partition(TP, counters, "f00d", checkpoint)


class FailingStore(MemoryCheckpointStore):
    """Dies before or after the write, as a connection can."""

    def __init__(self, *, after: bool) -> None:
        super().__init__("job")
        self.after = after
        self.failing = True

    def commit(self, checkpoint: Checkpoint) -> None:
        if self.failing and not self.after:
            raise ServiceUnavailable("away")
        super().commit(checkpoint)
        if self.failing:
            raise ServiceUnavailable("no answer")


def test_commit_then_restore_is_the_same_state() -> None:
    store = MemoryCheckpointStore("job")
    partition = fresh()
    partition.count(tokens(1, 1, 2), times(), 0, 1)
    partition.count(tokens(3), times(), 1, 2)
    assert partition.commit(store, 5, {}) == 2
    stored = store.load(TP)
    assert stored is not None
    assert (stored.version, stored.next_offset) == (1, 2)
    assert stored.state.counts_HV[0].tolist() == [0, 2, 1, 1, 0, 0, 0, 0]
    restored = fresh(stored)
    restored.count(tokens(3), times(), 2, 3)
    assert restored.commit(store, 6, {}) == 3
    again = store.load(TP)
    assert again is not None
    assert again.state.counts_HV[0].tolist() == [0, 2, 1, 2, 0, 0, 0, 0]


def test_nothing_new_is_not_written() -> None:
    store = MemoryCheckpointStore("job")
    partition = fresh()
    assert partition.commit(store, 1, {}) is None
    partition.count(tokens(1), times(), 0, 1)
    assert partition.commit(store, 1, {}) == 1
    assert partition.commit(store, 1, {}) is None
    assert store.versions() == {TP: 1}


def test_an_empty_batch_that_moves_on_is_written() -> None:
    store = MemoryCheckpointStore("job")
    partition = fresh()
    partition.count(TokenBatch.empty(), np.empty(0, np.int64), 7, 7)
    assert partition.commit(store, 1, {}) == 7
    stored = store.load(TP)
    assert stored is not None
    assert stored.gaps == (Gap(TP, 0, 7),)


def test_a_zombie_never_overwrites() -> None:
    store = MemoryCheckpointStore("job")
    zombie, owner = fresh(), fresh()
    owner.count(tokens(1), times(), 0, 1)
    owner.commit(store, 1, {})
    zombie.count(tokens(2), times(), 0, 1)
    with pytest.raises(CheckpointConflict):
        zombie.commit(store, 1, {})
    assert zombie.closed
    assert not zombie.count(tokens(2), times(), 1, 2)
    assert zombie.commit(store, 1, {}) is None
    stored = store.load(TP)
    assert stored is not None
    assert stored.state.counts_HV[0].tolist() == [0, 1, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("after", [False, True])
def test_a_failed_write_is_tried_again_and_counts_once(after: bool) -> None:
    """Dies at step 2, before or behind the write: nothing is lost, nothing counts twice."""
    store = FailingStore(after=after)
    partition = fresh()
    partition.count(tokens(1), times(), 0, 1)
    with pytest.raises(ServiceUnavailable):
        partition.commit(store, 1, {})
    store.failing = False
    partition.count(tokens(2), times(), 1, 2)
    try:
        partition.commit(store, 1, {})
    except CheckpointConflict:
        # The write had happened: the partition begins again from the checkpoint.
        assert after
        stored = store.load(TP)
        assert stored is not None
        assert stored.next_offset == 1
        partition = fresh(stored)
        partition.count(tokens(2), times(), 1, 2)
        partition.commit(store, 1, {})
    stored = store.load(TP)
    assert stored is not None
    assert stored.next_offset == 2
    assert stored.state.counts_HV[0].tolist() == [0, 1, 1, 0, 0, 0, 0, 0]


def test_the_next_offset_never_goes_back() -> None:
    partition = fresh()
    partition.count(tokens(1), times(), 0, 10)
    partition.count(TokenBatch.empty(), np.empty(0, np.int64), 4, 4)
    assert partition.next_offset == 10


def test_gaps_that_touch_become_one() -> None:
    gaps = with_gap((Gap(TP, 0, 5),), Gap(TP, 9, 12))
    assert gaps == (Gap(TP, 0, 5), Gap(TP, 9, 12))
    assert with_gap(gaps, Gap(TP, 9, 12)) == gaps
    assert with_gap(gaps, Gap(TP, 5, 9)) == (Gap(TP, 0, 12),)
