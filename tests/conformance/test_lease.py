"""The laws of the publisher's lease, for memory, for every server found, and for clusters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from streamfreq.clock import ManualClock
from streamfreq.config import RedisConfig, SnapshotsConfig
from streamfreq.errors import ConfigError
from streamfreq.snapshots import (
    MemoryPublisherLease,
    MemorySnapshots,
    PublisherLease,
    open_lease,
    open_snapshots,
)
from tests.conformance.values import make_snapshot

Open = Callable[..., PublisherLease]


@pytest.fixture
def open_for(store_config: RedisConfig) -> Open:
    def opened(holder: str, seconds: float = 60.0) -> PublisherLease:
        return open_lease(store_config, SnapshotsConfig(lease_seconds=seconds), "news", holder)

    return opened


def test_at_most_one_holder(open_for: Open) -> None:
    a, b = open_for("a"), open_for("b")
    assert a.acquire() == 1
    assert b.acquire() is None
    assert a.acquire() == 1, "the holder keeps its token"
    a.release()
    assert b.acquire() == 2, "a new holder has a higher token"
    assert a.acquire() is None


def test_only_the_holder_releases(open_for: Open) -> None:
    a, b = open_for("a"), open_for("b")
    b.release()
    a.acquire()
    b.release()
    assert b.acquire() is None
    a.release()
    a.release()
    assert b.acquire() is not None


def test_holders_are_told_apart_to_the_last_character(open_for: Open) -> None:
    awkward = ["host:1", "host:12", "ho st\n1", "1 host:1", "", "主机"]
    tokens = []
    for holder in awkward:
        lease = open_for(holder)
        tokens.append(lease.acquire())
        others = [open_for(other).acquire() for other in awkward if other != holder]
        assert others == [None] * (len(awkward) - 1)
        lease.release()
    assert tokens == list(range(1, len(awkward) + 1))


def test_it_expires_and_moves_on(open_for: Open) -> None:
    a, b = open_for("a", 0.2), open_for("b", 60.0)
    first = a.acquire()
    assert first is not None
    second = None
    deadline = time.monotonic() + 10
    while second is None and time.monotonic() < deadline:
        time.sleep(0.05)
        second = b.acquire()
    assert second is not None
    assert second > first
    assert a.acquire() is None
    a.release()
    assert b.acquire() == second


def test_renewing_keeps_it(open_for: Open) -> None:
    """Renewed for a minute, it outlives the short time that it was taken for."""
    assert open_for("a", 0.3).acquire() == 1
    assert open_for("a", 60.0).acquire() == 1
    time.sleep(0.5)
    assert open_for("b").acquire() is None


def test_a_holder_behind_the_fence_gets_a_token_that_lets_it_publish(
    store_config: RedisConfig, open_for: Open
) -> None:
    """A store that lost its last writes may know a higher fence than the lease's token."""
    lease = open_for("a")
    assert lease.acquire() == 1
    store = open_snapshots(store_config, SnapshotsConfig(), "news")
    store.publish(make_snapshot(1), 7)
    token = lease.acquire()
    assert token == 8
    store.publish(make_snapshot(2), token)


def test_of_many_threads_one_holds_it(open_for: Open) -> None:
    tokens: list[int | None] = []
    barrier = threading.Barrier(8)

    def take(i: int) -> None:
        lease = open_for(f"holder {i}")
        barrier.wait()
        tokens.append(lease.acquire())

    threads = [threading.Thread(target=take, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(tokens, key=str) == [1, *[None] * 7]


def test_a_lease_ends_some_time(open_for: Open) -> None:
    with pytest.raises(ConfigError, match=r"snapshots\.lease_seconds: inf is not allowed"):
        open_for("a", float("inf"))
    assert open_for("a", 0.000_1).acquire() == 1


def test_memory_follows_the_monotonic_clock_only() -> None:
    kept, clock = MemorySnapshots(), ManualClock(10**12)
    a, b = (MemoryPublisherLease(kept, holder, 15.0, clock) for holder in "ab")
    assert a.acquire() == 1
    clock.jump(3600)
    assert b.acquire() is None
    clock.jump(-7200)
    clock.advance(14.9)
    assert b.acquire() is None
    clock.advance(0.2)
    assert b.acquire() == 2
