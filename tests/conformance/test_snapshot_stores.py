"""The laws of a SnapshotStore, for memory, for every server found, and for clusters of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from streamfreq.codec import Floor
from streamfreq.config import RedisConfig, SnapshotsConfig
from streamfreq.errors import FencedOut
from streamfreq.redis_client import connect
from streamfreq.snapshots import Hints, SnapshotStore, open_lease, open_snapshots
from tests.conformance.values import NEWS, make_snapshot, same
from tests.services.redis import RedisServer

RETAIN = 3

Open = Callable[[], SnapshotStore]


@pytest.fixture
def open_store(store_config: RedisConfig) -> Open:
    """Opens one more store on the same snapshots, as another process would."""
    return lambda: open_snapshots(store_config, SnapshotsConfig(retain=RETAIN), "news")


@pytest.fixture
def store(open_store: Open) -> SnapshotStore:
    return open_store()


def versions(store: SnapshotStore) -> list[int]:
    return [info.version for info in store.infos()]


def test_nothing_at_first(store: SnapshotStore) -> None:
    assert store.latest_version() == 0
    assert store.load() is None
    assert store.load(1) is None
    assert store.infos() == []
    assert store.stale_since_ms() is None
    assert not store.set_pinned(1, True)


def test_what_is_published_comes_back_to_the_last_bit(open_store: Open) -> None:
    published = make_snapshot(7)
    open_store().publish(published, 1)
    reader = open_store()
    assert reader.latest_version() == 7
    assert same(reader.load(), published)
    assert same(reader.load(7), published)


def test_a_listing_says_what_is_kept(store: SnapshotStore) -> None:
    for version in (1, 2):
        store.publish(make_snapshot(version, seed=version), 1)
    store.set_pinned(1, True)
    first, second = store.infos()
    assert (first.version, first.pinned, first.latest) == (1, True, False)
    assert (second.version, second.pinned, second.latest) == (2, False, True)
    assert second.created_at_ms == make_snapshot(2).created_at_ms
    assert second.as_of_ms == make_snapshot(2, seed=2).as_of_ms
    assert second.size_bytes > 2 * 50 * 8


def test_the_latest_only_moves_forward(open_store: Open) -> None:
    one, other = open_store(), open_store()
    one.publish(make_snapshot(5), 1)
    for version in (0, 1, 4, 5):
        with pytest.raises(FencedOut, match="version 5 is published"):
            other.publish(make_snapshot(version, seed=1), 1)
    assert other.latest_version() == 5
    assert versions(other) == [5]
    assert same(other.load(), make_snapshot(5))


def test_the_same_snapshot_again_changes_nothing(store: SnapshotStore) -> None:
    store.publish(make_snapshot(1), 1)
    store.set_pinned(1, True)
    store.mark_stale(5)
    store.publish(make_snapshot(1), 1)
    assert versions(store) == [1]
    assert store.stale_since_ms() == 5
    assert store.infos()[0].pinned


def test_equal_bytes_of_another_publisher_are_refused(open_store: Open) -> None:
    open_store().publish(make_snapshot(1), 1)
    with pytest.raises(FencedOut):
        open_store().publish(make_snapshot(1), 1)


def test_an_older_fence_is_refused_and_nothing_changes(store: SnapshotStore) -> None:
    store.publish(make_snapshot(1), 4)
    store.mark_stale(77)
    with pytest.raises(FencedOut, match="fencing token 3 is older than 4"):
        store.publish(make_snapshot(2), 3)
    assert (store.latest_version(), versions(store), store.load(2)) == (1, [1], None)
    assert store.stale_since_ms() == 77
    store.publish(make_snapshot(2), 4)
    store.publish(make_snapshot(3), 9)
    with pytest.raises(FencedOut):
        store.publish(make_snapshot(4), 8)


def test_the_floor_is_what_was_published_last(open_store: Open) -> None:
    store = open_store()
    assert store.floor() == Floor()
    assert store.epoch() == 0
    for version in (1, 4):
        store.publish(make_snapshot(version), 1)
        assert open_store().floor() == Floor.of(make_snapshot(version))
    assert open_store().epoch() == make_snapshot(4).epoch


def test_the_floor_is_raised_by_a_later_one_only(open_store: Open) -> None:
    store, other = open_store(), open_store()
    store.raise_floor(Floor(9, 5, 1, {NEWS: 3}))
    assert other.floor() == Floor()
    store.publish(make_snapshot(1), 1)
    floor = Floor.of(make_snapshot(1))
    for raised in (replace(floor, epoch=floor.epoch - 1, version=9), replace(floor, version=0)):
        store.raise_floor(raised)
        assert other.floor() == floor
    higher = Floor(7, floor.epoch, floor.as_of_ms + 1, {NEWS: 2**53 + 9})
    store.raise_floor(higher)
    assert other.floor() == higher
    assert other.latest_version() == 1
    another = Floor(3, floor.epoch + 1, 5, {})
    store.raise_floor(another)
    store.raise_floor(replace(higher, version=99))
    assert other.floor() == another


def test_nothing_is_published_at_or_below_the_floor(store: SnapshotStore) -> None:
    store.publish(make_snapshot(1), 1)
    store.raise_floor(replace(Floor.of(make_snapshot(1)), version=6))
    for version in (2, 6):
        with pytest.raises(FencedOut, match="version 6"):
            store.publish(make_snapshot(version), 1)
    assert store.latest_version() == 1
    with pytest.raises(FencedOut):
        store.publish(make_snapshot(9, epoch=make_snapshot(1).epoch - 1), 1)
    store.publish(make_snapshot(7), 1)
    assert store.floor() == Floor.of(make_snapshot(7))


def test_an_ended_epoch_has_no_floor_but_the_versions_go_on(store: SnapshotStore) -> None:
    store.publish(make_snapshot(3), 1)
    store.end_epoch()
    assert (store.floor(), store.epoch(), store.latest_version()) == (Floor(), 0, 3)
    with pytest.raises(FencedOut):
        store.publish(make_snapshot(3, epoch=7), 1)
    store.publish(make_snapshot(4, epoch=7), 1)
    assert store.epoch() == 7


def test_a_new_lease_fences_the_old_holder_at_once(store_config: RedisConfig) -> None:
    settings = SnapshotsConfig(retain=RETAIN)
    store = open_snapshots(store_config, settings, "news")
    old = open_lease(store_config, settings, "news", "old")
    fence = old.acquire()
    assert fence is not None
    store.publish(make_snapshot(1), fence)
    old.release()
    assert open_lease(store_config, settings, "news", "new").acquire() is not None
    with pytest.raises(FencedOut, match="taken over"):
        store.publish(make_snapshot(2), fence)
    assert store.latest_version() == 1


def test_the_last_versions_stay(store: SnapshotStore) -> None:
    for version in range(1, 8):
        store.publish(make_snapshot(version), 1)
    assert versions(store) == [5, 6, 7]
    assert store.load(4) is None
    assert same(store.load(5), make_snapshot(5))


def test_holes_between_versions_are_no_reason_to_trim(store: SnapshotStore) -> None:
    for version in (1, 10, 100, 1000):
        store.publish(make_snapshot(version), 1)
    assert versions(store) == [10, 100, 1000]


def test_a_pinned_version_stays_until_it_is_unpinned(store: SnapshotStore) -> None:
    for version in (1, 2):
        store.publish(make_snapshot(version), 1)
    assert store.set_pinned(1, True)
    for version in range(3, 8):
        store.publish(make_snapshot(version), 1)
    assert versions(store) == [1, 5, 6, 7]
    assert same(store.load(1), make_snapshot(1))
    assert store.set_pinned(1, False)
    assert versions(store) == [1, 5, 6, 7]
    store.publish(make_snapshot(8), 1)
    assert versions(store) == [6, 7, 8]
    assert not store.set_pinned(1, True)
    assert not store.set_pinned(9, True)


def test_one_version_is_kept_when_so_configured(store_config: RedisConfig) -> None:
    store = open_snapshots(store_config, SnapshotsConfig(retain=1), "news")
    for version in range(1, 5):
        store.publish(make_snapshot(version), 1)
        assert versions(store) == [version]
        assert same(store.load(), make_snapshot(version))


def test_a_smaller_retain_trims_what_is_too_many(store_config: RedisConfig) -> None:
    many = open_snapshots(store_config, SnapshotsConfig(retain=10), "news")
    for version in range(1, 9):
        many.publish(make_snapshot(version), 1)
    few = open_snapshots(store_config, SnapshotsConfig(retain=2), "news")
    assert len(versions(few)) == 8
    few.publish(make_snapshot(9), 1)
    assert versions(few) == [8, 9]


def test_the_stale_mark_stays_until_it_is_taken_away(store: SnapshotStore) -> None:
    store.publish(make_snapshot(1), 1)
    store.mark_stale(1_700_000_000_000)
    assert store.stale_since_ms() == 1_700_000_000_000
    store.mark_stale(None)
    assert store.stale_since_ms() is None
    store.mark_stale(0)
    assert store.stale_since_ms() == 0
    store.publish(make_snapshot(2), 1)
    assert store.stale_since_ms() is None


def test_jobs_do_not_touch_each_other(store_config: RedisConfig) -> None:
    one, other = (open_snapshots(store_config, SnapshotsConfig(), job) for job in ("a", "b"))
    one.publish(make_snapshot(5), 50)
    one.mark_stale(1)
    assert (other.latest_version(), other.infos(), other.stale_since_ms()) == (0, [], None)
    other.publish(make_snapshot(1), 1)
    assert one.latest_version() == 5


def publish_some(store: SnapshotStore, seed: int, won: dict[int, int]) -> None:
    for _ in range(15):
        version = store.latest_version() + 1
        try:
            store.publish(make_snapshot(version, seed), 1)
        except FencedOut:
            continue
        assert version not in won
        won[version] = seed


def read_until(done: threading.Event, store: SnapshotStore, faults: list[str]) -> None:
    seen = 0
    while not done.is_set():
        latest = store.latest_version()
        snapshot = store.load()
        loaded = snapshot.version if snapshot is not None else 0
        if not seen <= latest <= loaded:
            faults.append(f"seen {seen}, then latest {latest}, then loaded {loaded}")
        # About to be trimmed: it is there as it was, or it is not there.
        oldest = store.load(loaded - RETAIN + 1)
        if oldest is not None and oldest.version != loaded - RETAIN + 1:
            faults.append(f"asked for {loaded - RETAIN + 1}, got {oldest.version}")
        seen = loaded


def test_publishers_in_threads_and_a_reader(open_store: Open) -> None:
    """The latest never goes down, no version is published twice, and the latest can be read."""
    won: dict[int, int] = {}
    faults: list[str] = []
    done = threading.Event()
    reader = threading.Thread(target=read_until, args=(done, open_store(), faults))
    publishers = [
        threading.Thread(target=publish_some, args=(open_store(), seed, won)) for seed in range(4)
    ]
    for thread in [reader, *publishers]:
        thread.start()
    for thread in publishers:
        thread.join()
    done.set()
    reader.join()
    assert faults == []
    assert sorted(won) == list(range(1, len(won) + 1))
    store = open_store()
    for version, seed in won.items():
        kept = store.load(version)
        assert kept is None or same(kept, make_snapshot(version, seed))
    store.publish(make_snapshot(len(won) + 1), 1)
    assert len(store.infos()) == RETAIN


def quiet(hints: Hints) -> None:
    """Take the hint that a new subscription gives by itself."""
    while hints.wait(0.3):
        pass


def test_a_hint_comes_with_each_publication(open_store: Open) -> None:
    hints = open_store().hints()
    quiet(hints)
    open_store().publish(make_snapshot(1), 1)
    assert hints.wait(20)
    assert not hints.wait(0.1)
    open_store().publish(make_snapshot(2), 1)
    assert hints.wait(20)
    hints.close()
    assert not hints.wait(20)


def test_the_end_wakes_who_waits_for_a_hint(open_store: Open) -> None:
    hints = open_store().hints()
    quiet(hints)
    heard: list[bool] = []
    waiting = threading.Thread(target=lambda: heard.append(hints.wait(600)))
    waiting.start()
    hints.close()
    waiting.join(30)
    assert heard == [False]


@pytest.mark.redis_server
def test_hints_outlive_the_server(redis_kind: str) -> None:
    """While it is away nothing is raised; a new subscription is a reason to look, then it hears."""
    with RedisServer(redis_kind, appendonly=True) as server:
        store = open_snapshots(server.config(), SnapshotsConfig(), "news")
        hints = store.hints()
        quiet(hints)
        server.kill()
        assert not hints.wait(0.3)
        server.start()
        assert hints.wait(20)
        quiet(hints)
        store.publish(make_snapshot(1), 1)
        assert hints.wait(20)
        hints.close()


@pytest.mark.redis_server
def test_a_connection_that_is_cut_does_not_make_hints_deaf(redis_config: RedisConfig) -> None:
    store = open_snapshots(redis_config, SnapshotsConfig(), "news")
    hints = store.hints()
    quiet(hints)
    connect(redis_config).execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    store.publish(make_snapshot(1), 1)  # nobody listens
    assert hints.wait(20)
    quiet(hints)
    store.publish(make_snapshot(2), 1)
    assert hints.wait(20)
    hints.close()
