"""Laws of a partition: counters and next offset move together, and a commit is all or nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streamfreq.checkpoints.memory import MemoryCheckpointStore
from streamfreq.codec import NO_REVISION, Checkpoint, CheckpointUpdate, Gap
from streamfreq.counting import Counters
from streamfreq.counting import counters as counters_module
from streamfreq.errors import CheckpointConflict, DataRefused, ServiceUnavailable, StreamfreqError
from streamfreq.partition import Partition, with_gap
from streamfreq.records import RecordBatch, TokenBatch, TopicPartition
from tests.conformance.values import versions

TP = TopicPartition("news", 0)
V = 8


def tokens(*ids: int) -> TokenBatch:
    return TokenBatch(np.array(ids, np.int32), np.array([len(ids)], np.int64))


def batch(first: int, next_offset: int, topic_id: str = "") -> RecordBatch:
    """One record at `first`; none when that is where reading goes on."""
    offsets_R = np.arange(first, min(first + 1, next_offset))
    return RecordBatch(TP, offsets_R, offsets_R, [b""] * len(offsets_R), next_offset, topic_id)


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

    def commit(self, update: CheckpointUpdate) -> None:
        if self.failing and not self.after:
            raise ServiceUnavailable("away")
        super().commit(update)
        if self.failing:
            raise ServiceUnavailable("no answer")


def test_commit_then_restore_is_the_same_state() -> None:
    store = MemoryCheckpointStore("job")
    partition = fresh()
    partition.count(tokens(1, 1, 2), times(), batch(0, 1))
    partition.count(tokens(3), times(), batch(1, 2))
    assert partition.commit(store, 5) == 2
    stored = store.load(TP)
    assert stored is not None
    assert (stored.version, stored.next_offset) == (1, 2)
    assert stored.state.counts_HV[0].tolist() == [0, 2, 1, 1, 0, 0, 0, 0]
    restored = fresh(stored)
    restored.count(tokens(3), times(), batch(2, 3))
    assert restored.commit(store, 6) == 3
    again = store.load(TP)
    assert again is not None
    assert again.state.counts_HV[0].tolist() == [0, 2, 1, 2, 0, 0, 0, 0]


def test_nothing_new_is_not_written() -> None:
    store = MemoryCheckpointStore("job")
    partition = fresh()
    assert partition.commit(store, 1) is None
    partition.count(tokens(1), times(), batch(0, 1))
    assert partition.commit(store, 1) == 1
    assert partition.commit(store, 1) is None
    assert versions(store) == {TP: 1}


def test_an_empty_batch_that_moves_on_is_written() -> None:
    store = MemoryCheckpointStore("job")
    partition = fresh()
    partition.count(TokenBatch.empty(), np.empty(0, np.int64), batch(7, 7))
    assert partition.commit(store, 1) == 7
    stored = store.load(TP)
    assert stored is not None
    assert stored.gaps == (Gap(TP, 0, 7),)


def test_a_zombie_never_overwrites() -> None:
    store = MemoryCheckpointStore("job")
    zombie, owner = fresh(), fresh()
    owner.count(tokens(1), times(), batch(0, 1))
    owner.commit(store, 1)
    zombie.count(tokens(2), times(), batch(0, 1))
    with pytest.raises(CheckpointConflict):
        zombie.commit(store, 1)
    assert zombie.closed
    assert not zombie.count(tokens(2), times(), batch(1, 2))
    assert zombie.commit(store, 1) is None
    stored = store.load(TP)
    assert stored is not None
    assert stored.state.counts_HV[0].tolist() == [0, 1, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("after", [False, True])
def test_a_failed_write_is_tried_again_and_counts_once(after: bool) -> None:
    """Dies at step 2, before or behind the write: nothing is lost, nothing counts twice."""
    store = FailingStore(after=after)
    partition = fresh()
    partition.count(tokens(1), times(), batch(0, 1))
    with pytest.raises(ServiceUnavailable):
        partition.commit(store, 1)
    assert partition.dirty
    store.failing = False
    partition.count(tokens(2), times(), batch(1, 2))
    assert partition.compare_with_stored(store.revisions().get(TP, NO_REVISION)) is None
    assert partition.commit(store, 1) == 2
    stored = store.load(TP)
    assert stored is not None
    assert (stored.version, stored.next_offset) == (2 if after else 1, 2)
    assert stored.state.counts_HV[0].tolist() == [0, 1, 1, 0, 0, 0, 0, 0]


def test_a_commit_costs_what_changed_and_the_whole_now_and_then() -> None:
    """Rows written, over many commits of a wide state, are some times those that changed."""
    store = MemoryCheckpointStore("job")
    partition = Partition(TP, Counters((math.inf,), 1_000), "f00d")
    everything = TokenBatch(np.arange(1_000, dtype=np.int32), np.array([1_000]))
    partition.count(everything, times(), batch(0, 1))
    partition.commit(store, 1)
    written, wholes = 0, 0
    for offset in range(1, 600):
        partition.count(tokens(offset % 7, offset % 900), times(), batch(offset, offset + 1))
        update = committed(partition, store)
        written += len(update.changes.rows_U)
        wholes += update.changes.whole
    assert wholes == 2
    assert written < 2 * 600 + 2 * 1_000
    assert len(committed_parts(store)) <= 257
    stored = store.load(TP)
    assert stored is not None
    assert stored.state.counts_HV.sum() == 1_000 + 2 * 599


def test_after_a_restore_it_goes_on_with_changes() -> None:
    store = MemoryCheckpointStore("job")
    partition = Partition(TP, Counters((math.inf,), 100), "f00d")
    partition.count(
        TokenBatch(np.arange(100, dtype=np.int32), np.array([100])), times(), batch(0, 1)
    )
    partition.commit(store, 1)
    for offset in range(1, 5):
        stored = store.load(TP)
        assert stored is not None
        restored = Partition(TP, Counters.from_state(stored.state), "f00d", stored)
        restored.count(tokens(3), times(), batch(offset, offset + 1))
        assert not committed(restored, store).changes.whole


def test_a_batch_that_was_counted_by_half_is_never_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory runs out between two horizons: the partition closes, and the batch is read again."""
    store = MemoryCheckpointStore("job")
    half_lives = (math.inf, 60.0)
    partition = Partition(TP, Counters(half_lives, V), "f00d")
    partition.count(tokens(5), times(), batch(0, 1))
    partition.commit(store, 1)
    weigh = counters_module.record_weights

    def weigh_or_die(times_ms_R: np.ndarray, half_life: int | None, landmark: int) -> np.ndarray:
        if half_life is not None:
            raise MemoryError
        return weigh(times_ms_R, half_life, landmark)

    with monkeypatch.context() as patch:
        patch.setattr(counters_module, "record_weights", weigh_or_die)
        with pytest.raises(MemoryError):
            partition.count(tokens(5), times(), batch(1, 2))
    assert partition.closed
    assert partition.commit(store, 1) is None
    stored = store.load(TP)
    assert stored is not None
    assert (stored.next_offset, stored.state.counts_HV[0, 5]) == (1, 1)


def test_what_is_refused_before_it_is_counted_leaves_the_partition_open() -> None:
    store = MemoryCheckpointStore("job")
    partition = fresh()
    partition.count(tokens(5), times(), batch(0, 1))
    with pytest.raises(StreamfreqError, match="token id 99"):
        partition.count(tokens(99), times(), batch(1, 2))
    assert partition.commit(store, 1) == 1


def test_labels_that_fail_lose_no_change() -> None:
    store = MemoryCheckpointStore("job")
    partition = Partition(TP, Counters((math.inf,), 100), "f00d")
    everything = TokenBatch(np.arange(100, dtype=np.int32), np.array([100]))
    partition.count(everything, times(), batch(0, 1))
    partition.commit(store, 1)
    partition.count(tokens(3), times(), batch(1, 2))

    def failing() -> dict[int, str]:
        raise MemoryError

    with pytest.raises(MemoryError):
        partition.commit(store, 1, failing)
    partition.count(tokens(4), times(), batch(2, 3))
    assert partition.commit(store, 1) == 3
    stored = store.load(TP)
    assert stored is not None
    assert stored.state.counts_HV[0, 2:6].tolist() == [1, 2, 2, 1]


def test_another_topic_of_the_same_name_is_refused_and_nothing_is_counted() -> None:
    store = MemoryCheckpointStore("job")
    partition = fresh()
    partition.count(tokens(1), times(), batch(0, 1))
    partition.count(tokens(1), times(), batch(1, 2, "one"))
    partition.commit(store, 1)
    restored = fresh(store.load(TP))
    restored.count(tokens(1), times(), batch(2, 3))
    with pytest.raises(DataRefused, match=r"news was deleted and made again.*checkpoint delete"):
        restored.count(tokens(2), times(), batch(3, 4, "two"))
    assert restored.next_offset == 3
    restored.count(tokens(1), times(), batch(3, 4, "one"))
    restored.commit(store, 1)
    stored = store.load(TP)
    assert stored is not None
    assert (stored.topic_id, stored.state.counts_HV[0, :3].tolist()) == ("one", [0, 4, 0])


def test_a_store_that_went_back_gets_all_again_unless_it_has_more() -> None:
    """A zombie and an owner, and a store that lost the versions that told them apart."""
    store = MemoryCheckpointStore("job")
    zombie = fresh()
    for offset in range(3):
        zombie.count(tokens(1), times(), batch(offset, offset + 1))
        zombie.commit(store, 1)
    store.delete(TP)
    owner = fresh()
    owner.count(tokens(1), times(), batch(0, 9))
    owner.commit(store, 1)
    assert zombie.compare_with_stored(store.revisions()[TP]) == 3
    with pytest.raises(CheckpointConflict, match="next offset 9"):
        zombie.commit(store, 1)
    assert zombie.closed
    stored = store.load(TP)
    assert stored is not None
    assert stored.next_offset == 9


def committed(partition: Partition, store: MemoryCheckpointStore) -> CheckpointUpdate:
    """What one commit of the partition gave to the store."""
    taken: list[CheckpointUpdate] = []

    class Taking(MemoryCheckpointStore):
        def commit(self, update: CheckpointUpdate) -> None:
            store.commit(update)
            taken.append(update)

    assert partition.commit(Taking("job"), 1) is not None
    return taken[0]


def committed_parts(store: MemoryCheckpointStore) -> tuple[bytes, ...]:
    return store._kept.entries[TP].parts


def test_the_next_offset_never_goes_back() -> None:
    partition = fresh()
    partition.count(tokens(1), times(), batch(0, 10))
    partition.count(TokenBatch.empty(), np.empty(0, np.int64), batch(4, 4))
    assert partition.next_offset == 10


def test_gaps_that_touch_become_one() -> None:
    gaps = with_gap((Gap(TP, 0, 5),), Gap(TP, 9, 12))
    assert gaps == (Gap(TP, 0, 5), Gap(TP, 9, 12))
    assert with_gap(gaps, Gap(TP, 9, 12)) == gaps
    assert with_gap(gaps, Gap(TP, 5, 9)) == (Gap(TP, 0, 12),)
