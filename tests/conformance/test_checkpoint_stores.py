"""The laws of a CheckpointStore, for memory, for every server found, and for clusters of them."""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from streamfreq.checkpoints import CheckpointStore, open_checkpoints
from streamfreq.codec import NO_REVISION, Chain
from streamfreq.config import RedisConfig
from streamfreq.counting import Counters
from streamfreq.errors import CheckpointConflict
from streamfreq.records import TokenBatch, TopicPartition
from tests.conformance.values import (
    NEWS,
    make_changes,
    make_checkpoint,
    make_state,
    make_token,
    make_update,
    same,
    versions,
)

Open = Callable[[], CheckpointStore]

AWKWARD = [
    TopicPartition("plain", 0),
    TopicPartition("plain", 11),
    TopicPartition("with.dots_and-dashes", 2),
    TopicPartition("/data/a folder/{x}:y.jsonl.gz", 0),
    TopicPartition("新闻%2F", 1),
    TopicPartition("plain:0", 0),
]


@pytest.fixture
def open_store(store_config: RedisConfig) -> Open:
    """Opens one more store on the same checkpoints, as another worker would."""
    job = f"news-{uuid.uuid4().hex[:8]}"
    return lambda: open_checkpoints(store_config, job)


@pytest.fixture
def store(open_store: Open) -> CheckpointStore:
    return open_store()


def test_nothing_at_first(store: CheckpointStore) -> None:
    assert store.load(NEWS) is None
    assert store.revisions() == {}
    assert not store.delete(NEWS)


def test_what_is_committed_comes_back_to_the_last_bit(open_store: Open) -> None:
    open_store().commit(make_update())
    assert same(open_store().load(NEWS), make_checkpoint())
    assert open_store().revisions() == {NEWS: make_update().revision}


def test_only_what_follows_the_stored_revision_is_taken(store: CheckpointStore) -> None:
    for version in (1, 2, 3):
        store.commit(make_update(version))
    for version in (1, 2, 3, 5, 9):
        with pytest.raises(CheckpointConflict, match="version 3 "):
            store.commit(make_update(version, seed=1))
        assert same(store.load(NEWS), make_checkpoint(3))
    assert versions(store) == {NEWS: 3}


def test_the_first_follows_nothing(store: CheckpointStore) -> None:
    with pytest.raises(CheckpointConflict, match="version 0 "):
        store.commit(make_update(2))
    assert store.load(NEWS) is None
    assert store.revisions() == {}


def test_of_two_writers_the_second_loses_and_writes_nothing(open_store: Open) -> None:
    one, other = open_store(), open_store()
    one.commit(make_update(1))
    one.commit(make_update(2, seed=1))
    with pytest.raises(CheckpointConflict, match="another worker owns the partition"):
        other.commit(make_update(2, seed=2))
    assert same(other.load(NEWS), make_checkpoint(2, seed=1))


def test_an_equal_version_of_another_history_is_no_base(open_store: Open) -> None:
    """The store lost version 2 and got another one: what builds on the first does not fit."""
    store = open_store()
    store.commit(make_update(1))
    store.commit(make_update(2, seed=1))
    for changes in ({}, {"changes": make_changes([1])}):
        with pytest.raises(CheckpointConflict, match="version 2 "):
            store.commit(make_update(3, after=make_token(2, seed=0), **changes))
    assert same(store.load(NEWS), make_checkpoint(2, seed=1))


def test_fewer_records_than_are_stored_are_refused(store: CheckpointStore) -> None:
    store.commit(make_update(1, next_offset=5_000))
    with pytest.raises(CheckpointConflict, match="next offset 5000"):
        store.commit(make_update(2, next_offset=4_999))
    store.commit(make_update(2, next_offset=5_000))


def test_the_same_commit_again_is_no_conflict(store: CheckpointStore) -> None:
    for _ in range(3):
        store.commit(make_update(1))
    for _ in range(3):
        store.commit(make_update(2, changes=make_changes([4])))
    with pytest.raises(CheckpointConflict):
        store.commit(make_update(2, seed=9))


def test_changes_are_laid_over_the_whole(open_store: Open) -> None:
    store = open_store()
    store.commit(make_update(1))
    store.commit(make_update(2, changes=make_changes([0, 7]), labels=None, next_offset=2_000))
    store.commit(make_update(3, changes=make_changes([7, 49], value=8.0), labels={1: "one"}))
    state = make_state()
    for rows, value in (([0, 7], 1.5), ([7, 49], 8.0)):
        state.counts_HV[:, rows] = value
        assert state.documents_HV is not None
        state.documents_HV[:, rows] = value / 2
    loaded = open_store().load(NEWS)
    assert loaded is not None
    assert same(loaded.state.counts_HV, state.counts_HV)
    assert same(loaded.state.documents_HV, state.documents_HV)
    assert same(loaded.state.tokens_H, state.tokens_H + 8.0)
    assert (loaded.version, loaded.next_offset, loaded.labels) == (3, 3_000, {1: "one"})
    assert loaded.chain == Chain(len(make_update().changes.rows_U), 4, 2)


def test_a_whole_one_takes_the_place_of_all_before(open_store: Open) -> None:
    store = open_store()
    store.commit(make_update(1))
    for version in range(2, 6):
        store.commit(make_update(version, changes=make_changes([version])))
    store.commit(make_update(6, seed=3))
    store.commit(make_update(7, changes=make_changes([5], seed=3), after=make_token(6, 3)))
    loaded = open_store().load(NEWS)
    assert loaded is not None
    assert loaded.chain.changes == 1
    expected = make_state(3)
    expected.counts_HV[:, 5] = 1.5
    assert same(loaded.state.counts_HV, expected.counts_HV)


def test_labels_stay_when_a_change_has_none(store: CheckpointStore) -> None:
    store.commit(make_update(1))
    store.commit(make_update(2, changes=make_changes([1]), labels=None))
    loaded = store.load(NEWS)
    assert loaded is not None
    assert loaded.labels == make_update(1).labels


def test_a_reader_that_follows_has_what_a_new_one_reads(open_store: Open) -> None:
    store, reader = open_store(), open_store()
    known = None
    for version in range(1, 12):
        whole = version % 5 == 1
        changes = {} if whole else {"changes": make_changes([version, 40])}
        store.commit(make_update(version, **changes))
        if version % 2 or version == 6:
            known = reader.load(NEWS, known)
            assert same(known, open_store().load(NEWS))
    assert known is not None
    assert reader.load(NEWS, known) is known


def test_a_reader_of_another_history_begins_anew(open_store: Open) -> None:
    """The store went back, and on again by another way, behind the reader's back."""
    store, reader = open_store(), open_store()
    store.commit(make_update(1))
    store.commit(make_update(2, changes=make_changes([1])))
    known = reader.load(NEWS)
    store.delete(NEWS)
    store.commit(make_update(1, token="another"))
    store.commit(make_update(2, after="another", token="way", changes=make_changes([2])))
    store.commit(make_update(3, after="way", changes=make_changes([3])))
    assert same(reader.load(NEWS, known), open_store().load(NEWS))


@pytest.mark.parametrize("seed", range(3))
def test_any_sequence_of_changes_is_the_state_that_was_taken(open_store: Open, seed: int) -> None:
    """Counters and store together: deltas, wholes and landmark moves, against the plain state."""
    random = np.random.default_rng(seed)
    counters = Counters((1.0, 600.0, math.inf), 200)
    store, reader = open_store(), open_store()
    chain, known, follows = Chain(), None, NO_REVISION
    time_ms = 1_000
    for step in range(40):
        ids_N = random.zipf(1.5, size=20).clip(max=200).astype(np.int32) - 1
        # Now and then far enough ahead to move the shortest half-life's landmark.
        time_ms += int(random.integers(1, 700_000 if step % 9 == 8 else 900))
        counters.update(TokenBatch(ids_N, np.array([20])), np.array([time_ms]))
        changes = counters.take_changes(whole=chain.full_for(counters.changed_rows))
        if random.random() < 0.2:
            counters.put_back(changes)
            continue
        update = make_update(1, follows=follows, token=f"t{step}", changes=changes)
        update = replace(update, next_offset=step)
        store.commit(update)
        chain, follows = chain.then(changes), update.revision
        if random.random() < 0.5:
            known = reader.load(NEWS, known)
            assert known is not None
            assert same(known.state, counters.state())
            assert known.chain == chain
    assert chain.changes < 40


def test_of_many_threads_exactly_one_wins_each_version(open_store: Open) -> None:
    wins: list[tuple[int, int]] = []
    barrier = threading.Barrier(4)

    def work(seed: int) -> None:
        store = open_store()
        for version in range(1, 11):
            barrier.wait()
            stored = store.revisions().get(NEWS, NO_REVISION)
            barrier.wait()
            try:
                store.commit(make_update(version, seed, follows=stored, next_offset=version))
                wins.append((version, seed))
            except CheckpointConflict:
                pass

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(version for version, _ in wins) == list(range(1, 11))
    last = next(seed for version, seed in wins if version == 10)
    assert open_store().revisions() == {NEWS: (10, make_token(10, last))}


def test_partitions_do_not_touch_each_other(store: CheckpointStore) -> None:
    for seed, partition in enumerate(AWKWARD):
        for version in range(1, seed + 2):
            store.commit(
                make_update(version, seed, partition=partition, after=make_token(version - 1, seed))
            )
    assert versions(store) == {partition: i + 1 for i, partition in enumerate(AWKWARD)}
    for seed, partition in enumerate(AWKWARD):
        assert same(store.load(partition), make_checkpoint(seed + 1, seed, partition=partition))


def test_jobs_do_not_touch_each_other(store_config: RedisConfig) -> None:
    one, other = (open_checkpoints(store_config, job) for job in ("one", "one.checkpoint"))
    one.commit(make_update(1))
    assert other.revisions() == {}
    other.commit(make_update(1, seed=5))
    assert one.delete(NEWS)
    assert same(other.load(NEWS), make_checkpoint(1, seed=5))


def test_after_delete_counting_starts_anew(store: CheckpointStore) -> None:
    for partition in AWKWARD:
        store.commit(make_update(1, partition=partition))
    assert [store.delete(partition) for partition in AWKWARD] == [True] * len(AWKWARD)
    assert store.revisions() == {}
    with pytest.raises(CheckpointConflict, match="version 0 "):
        store.commit(make_update(2))
    assert store.revisions() == {}
    store.commit(make_update(1, seed=4))
    assert versions(store) == {NEWS: 1}


def test_what_the_caller_changes_later_is_not_stored(store: CheckpointStore) -> None:
    mine = make_update(1)
    store.commit(mine)
    mine.changes.counts_HU[:] = 0
    loaded = store.load(NEWS)
    assert same(loaded, make_checkpoint(1))
    assert loaded is not None
    loaded.state.counts_HV[:] = 0
    assert same(store.load(NEWS), make_checkpoint(1))
