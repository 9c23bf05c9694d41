"""The laws of a CheckpointStore, for memory, for every server found, and for clusters of them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable

import pytest

from streamfreq.checkpoints import CheckpointStore, open_checkpoints
from streamfreq.config import RedisConfig
from streamfreq.errors import CheckpointConflict
from streamfreq.records import TopicPartition
from tests.conformance.values import NEWS, make_checkpoint, same

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
    assert store.versions() == {}
    assert store.delete_all() == 0


def test_what_is_committed_comes_back_to_the_last_bit(open_store: Open) -> None:
    committed = make_checkpoint()
    open_store().commit(committed)
    assert same(open_store().load(NEWS), committed)


def test_only_the_next_version_follows(store: CheckpointStore) -> None:
    for version in (1, 2, 3):
        store.commit(make_checkpoint(version))
    for version in (0, 1, 2, 5, 9):
        with pytest.raises(CheckpointConflict, match="version 3 is stored"):
            store.commit(make_checkpoint(version, seed=1))
        assert same(store.load(NEWS), make_checkpoint(3))
    assert store.versions() == {NEWS: 3}


def test_the_first_version_is_1(store: CheckpointStore) -> None:
    with pytest.raises(CheckpointConflict, match="version 0 is stored"):
        store.commit(make_checkpoint(2))
    assert store.load(NEWS) is None
    assert store.versions() == {}


def test_of_two_writers_the_second_loses_and_writes_nothing(open_store: Open) -> None:
    one, other = open_store(), open_store()
    one.commit(make_checkpoint(1))
    one.commit(make_checkpoint(2, seed=1))
    with pytest.raises(CheckpointConflict, match="another worker owns the partition"):
        other.commit(make_checkpoint(2, seed=2))
    assert same(other.load(NEWS), make_checkpoint(2, seed=1))


def test_equal_bytes_of_another_writer_are_a_conflict_too(open_store: Open) -> None:
    open_store().commit(make_checkpoint(1))
    with pytest.raises(CheckpointConflict):
        open_store().commit(make_checkpoint(1))


def test_the_same_commit_again_is_no_conflict(store: CheckpointStore) -> None:
    for _ in range(3):
        store.commit(make_checkpoint(1))
    with pytest.raises(CheckpointConflict):
        store.commit(make_checkpoint(1, seed=9))


def test_of_many_threads_exactly_one_wins_each_version(open_store: Open) -> None:
    wins: list[int] = []
    barrier = threading.Barrier(4)

    def work(seed: int) -> None:
        store = open_store()
        for version in range(1, 11):
            barrier.wait()
            try:
                store.commit(make_checkpoint(version, seed))
                wins.append(version)
            except CheckpointConflict:
                pass

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(wins) == list(range(1, 11))


def test_load_only_when_newer(store: CheckpointStore) -> None:
    store.commit(make_checkpoint(1))
    store.commit(make_checkpoint(2))
    assert same(store.load(NEWS, newer_than=1), make_checkpoint(2))
    assert store.load(NEWS, newer_than=2) is None
    assert store.load(NEWS, newer_than=3) is None


def test_partitions_do_not_touch_each_other(store: CheckpointStore) -> None:
    for seed, partition in enumerate(AWKWARD):
        for version in range(1, seed + 2):
            store.commit(make_checkpoint(version, seed, partition=partition))
    assert store.versions() == {partition: i + 1 for i, partition in enumerate(AWKWARD)}
    for seed, partition in enumerate(AWKWARD):
        expected = make_checkpoint(seed + 1, seed, partition=partition)
        assert same(store.load(partition), expected)


def test_jobs_do_not_touch_each_other(store_config: RedisConfig) -> None:
    one, other = (open_checkpoints(store_config, job) for job in ("one", "one.checkpoint"))
    one.commit(make_checkpoint(1))
    assert other.versions() == {}
    other.commit(make_checkpoint(1, seed=5))
    assert one.delete_all() == 1
    assert same(other.load(NEWS), make_checkpoint(1, seed=5))


def test_after_delete_all_counting_starts_anew(store: CheckpointStore) -> None:
    for partition in AWKWARD:
        store.commit(make_checkpoint(1, partition=partition))
    assert store.delete_all() == len(AWKWARD)
    assert store.versions() == {}
    with pytest.raises(CheckpointConflict, match="version 0 is stored"):
        store.commit(make_checkpoint(2))
    assert store.versions() == {}
    store.commit(make_checkpoint(1, seed=4))
    assert store.versions() == {NEWS: 1}


def test_what_the_caller_changes_later_is_not_stored(store: CheckpointStore) -> None:
    mine = make_checkpoint(1)
    store.commit(mine)
    mine.state.counts_HV[:] = 0
    loaded = store.load(NEWS)
    assert same(loaded, make_checkpoint(1))
    assert loaded is not None
    loaded.state.counts_HV[:] = 0
    assert same(store.load(NEWS), make_checkpoint(1))
