"""The process or connection dies before or after each step of a protocol; then it is retried."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamfreq.checkpoints.redis import RedisCheckpointStore
from streamfreq.config import RedisConfig
from streamfreq.errors import CheckpointConflict, CheckpointRefused, FencedOut, ServiceUnavailable
from streamfreq.redis_client import call, connect
from streamfreq.snapshots.redis import RedisPublisherLease, RedisSnapshotStore
from tests.conformance.values import (
    NEWS,
    make_checkpoint,
    make_snapshot,
    make_update,
    same,
    versions,
)
from tests.faults.redis_faults import FailingClient
from tests.services.front import Front
from tests.services.redis import RedisServer

COMMIT_STEPS = 2
PUBLISH_STEPS = 2
DELETE_STEPS = 2
RETAIN = 2

WHEN = pytest.mark.parametrize("when", ["before", "after"])


def checkpoints(client: FailingClient | None, config: RedisConfig) -> RedisCheckpointStore:
    return RedisCheckpointStore(client or connect(config), config.prefix, "news")


def snapshots(client: FailingClient | None, config: RedisConfig) -> RedisSnapshotStore:
    return RedisSnapshotStore(client or connect(config), config.prefix, "news", RETAIN)


def steps_of(config: RedisConfig, work: Callable[[FailingClient], object]) -> int:
    client = FailingClient(config)
    work(client)
    return client.calls


def test_the_number_of_steps_is_what_the_tests_below_walk_through(
    redis_config: RedisConfig,
) -> None:
    commit = steps_of(
        redis_config, lambda client: checkpoints(client, redis_config).commit(make_update(1))
    )
    publish = steps_of(
        redis_config, lambda client: snapshots(client, redis_config).publish(make_snapshot(1), 1)
    )
    assert (commit, publish) == (COMMIT_STEPS, PUBLISH_STEPS)


@WHEN
@pytest.mark.parametrize("step", range(1, COMMIT_STEPS + 1))
def test_commit_dies_and_is_retried(redis_config: RedisConfig, step: int, when: str) -> None:
    for version in (1, 2):
        checkpoints(None, redis_config).commit(make_update(version))
    client = FailingClient(redis_config, step, when)
    store = checkpoints(client, redis_config)
    with pytest.raises(ServiceUnavailable):
        store.commit(make_update(3))
    done = (step, when) == (COMMIT_STEPS, "after")
    reader = checkpoints(None, redis_config)
    assert same(reader.load(NEWS), make_checkpoint(3 if done else 2))
    assert versions(reader) == {NEWS: 3 if done else 2}
    client.mend()
    store.commit(make_update(3))
    assert same(reader.load(NEWS), make_checkpoint(3))
    store.commit(make_update(4))
    assert versions(reader) == {NEWS: 4}


@WHEN
@pytest.mark.parametrize("step", range(1, COMMIT_STEPS + 1))
def test_first_commit_dies_for_good_and_another_worker_takes_over(
    redis_config: RedisConfig, step: int, when: str
) -> None:
    dead = checkpoints(FailingClient(redis_config, step, when), redis_config)
    with pytest.raises(ServiceUnavailable):
        dead.commit(make_update(1))
    other = checkpoints(None, redis_config)
    done = (step, when) == (COMMIT_STEPS, "after")
    assert versions(other) == ({NEWS: 1} if done else {})
    other.commit(make_update(2 if done else 1, seed=8))
    assert list(versions(other)) == [NEWS]


def test_a_retry_that_comes_after_another_worker_is_a_conflict(redis_config: RedisConfig) -> None:
    client = FailingClient(redis_config, COMMIT_STEPS, "before")
    store = checkpoints(client, redis_config)
    with pytest.raises(ServiceUnavailable):
        store.commit(make_update(1))
    checkpoints(None, redis_config).commit(make_update(1, seed=8))
    client.mend()
    with pytest.raises(CheckpointConflict):
        store.commit(make_update(1))
    assert same(store.load(NEWS), make_checkpoint(1, seed=8))


@WHEN
@pytest.mark.parametrize("step", range(1, DELETE_STEPS + 1))
def test_delete_dies_and_is_retried(redis_config: RedisConfig, step: int, when: str) -> None:
    checkpoints(None, redis_config).commit(make_update(1))
    client = FailingClient(redis_config, step, when)
    with pytest.raises(ServiceUnavailable):
        checkpoints(client, redis_config).delete(NEWS)
    deleted = (step, when) != (1, "before")
    assert versions(checkpoints(None, redis_config)) == ({} if deleted else {NEWS: 1})
    assert checkpoints(None, redis_config).delete(NEWS) is not deleted
    assert checkpoints(None, redis_config).load(NEWS) is None


@WHEN
@pytest.mark.parametrize("step", range(1, PUBLISH_STEPS + 1))
def test_publish_dies_and_is_retried(redis_config: RedisConfig, step: int, when: str) -> None:
    for version in (1, 2):
        snapshots(None, redis_config).publish(make_snapshot(version), 1)
    snapshots(None, redis_config).mark_stale(5)
    client = FailingClient(redis_config, step, when)
    store = snapshots(client, redis_config)
    with pytest.raises(ServiceUnavailable):
        store.publish(make_snapshot(3), 1)
    done = (step, when) == (PUBLISH_STEPS, "after")
    reader = snapshots(None, redis_config)
    assert [info.version for info in reader.infos()] == ([2, 3] if done else [1, 2])
    assert same(reader.load(), make_snapshot(3 if done else 2))
    assert (reader.load(3) is not None) == done
    assert reader.stale_since_ms() == (None if done else 5)
    client.mend()
    store.publish(make_snapshot(3), 1)
    assert [info.version for info in reader.infos()] == [2, 3]
    assert same(reader.load(), make_snapshot(3))
    assert reader.stale_since_ms() is None


@WHEN
@pytest.mark.parametrize("step", range(1, PUBLISH_STEPS + 1))
def test_publisher_dies_for_good_and_another_takes_over(
    redis_config: RedisConfig, step: int, when: str
) -> None:
    dead = FailingClient(redis_config, 1 + step, when)
    old = RedisPublisherLease(dead, redis_config.prefix, "news", "old", 0.001)
    fence = old.acquire()
    assert fence is not None
    with pytest.raises(ServiceUnavailable):
        snapshots(dead, redis_config).publish(make_snapshot(1), fence)
    new = RedisPublisherLease(connect(redis_config), redis_config.prefix, "news", "new", 60)
    token = None
    while token is None:
        token = new.acquire()
    other = snapshots(None, redis_config)
    version = other.latest_version() + 1
    assert version == (2 if (step, when) == (PUBLISH_STEPS, "after") else 1)
    other.publish(make_snapshot(version, seed=8), token)
    dead.mend()
    with pytest.raises(FencedOut):
        snapshots(dead, redis_config).publish(make_snapshot(version + 1), fence)
    assert same(other.load(), make_snapshot(version, seed=8))


def test_a_version_pinned_between_the_steps_stays(redis_config: RedisConfig) -> None:
    other = snapshots(None, redis_config)
    for version in (1, 2):
        other.publish(make_snapshot(version), 1)
    client = FailingClient(redis_config)
    client.between(PUBLISH_STEPS, lambda: other.set_pinned(1, True))
    snapshots(client, redis_config).publish(make_snapshot(3), 1)
    assert [info.version for info in other.infos()] == [1, 2, 3]
    assert other.load(1) is not None


def test_another_publisher_between_the_steps(redis_config: RedisConfig) -> None:
    other = snapshots(None, redis_config)
    for version in (1, 2):
        other.publish(make_snapshot(version), 1)
    client = FailingClient(redis_config)
    client.between(PUBLISH_STEPS, lambda: other.publish(make_snapshot(3, seed=8), 1))
    with pytest.raises(FencedOut):
        snapshots(client, redis_config).publish(make_snapshot(3), 1)
    assert same(other.load(), make_snapshot(3, seed=8))
    client.between(PUBLISH_STEPS, lambda: other.publish(make_snapshot(4), 1))
    snapshots(client, redis_config).publish(make_snapshot(5), 1)
    assert [info.version for info in other.infos()][-2:] == [4, 5]
    other.publish(make_snapshot(6), 1)
    assert [info.version for info in other.infos()] == [5, 6]


def test_the_latest_is_trimmed_while_it_is_read(redis_config: RedisConfig) -> None:
    one_kept = RedisSnapshotStore(connect(redis_config), redis_config.prefix, "news", retain=1)
    one_kept.publish(make_snapshot(1), 1)
    client = FailingClient(redis_config)
    reader = snapshots(client, redis_config)
    client.between(2, lambda: one_kept.publish(make_snapshot(2), 1))
    assert same(reader.load(), make_snapshot(2))
    client.between(1, lambda: one_kept.publish(make_snapshot(3), 1))
    assert reader.load(2) is None


def test_a_body_that_the_server_evicted_is_not_kept(redis_config: RedisConfig) -> None:
    store = snapshots(None, redis_config)
    store.publish(make_snapshot(1), 1)
    call(connect(redis_config), "DEL", f"{redis_config.prefix}:{{news}}:snapshot:1")
    assert store.load() is None
    assert store.load(1) is None
    store.publish(make_snapshot(2), 1)
    assert same(store.load(), make_snapshot(2))


def test_another_worker_between_the_steps(redis_config: RedisConfig) -> None:
    other = checkpoints(None, redis_config)
    client = FailingClient(redis_config)
    client.between(COMMIT_STEPS, lambda: other.commit(make_update(1, seed=8)))
    with pytest.raises(CheckpointConflict):
        checkpoints(client, redis_config).commit(make_update(1))
    assert same(other.load(NEWS), make_checkpoint(1, seed=8))


def test_lost_answers_are_no_conflict(redis_server: RedisServer, redis_config: RedisConfig) -> None:
    """The client itself sends again: the server did the work, only its answer was lost."""
    with Front(redis_server.port) as front:
        config = redis_config.model_copy(update={"url": f"redis://127.0.0.1:{front.port}"})
        store, published = checkpoints(None, config), snapshots(None, config)
        lease = RedisPublisherLease(connect(config), config.prefix, "news", "me", 60)
        store.commit(make_update(1))
        published.publish(make_snapshot(1), 1)
        assert lease.acquire() == 2
        front.lose_answer_to(b"SADD", b"EVALSHA")
        store.commit(make_update(2))
        assert versions(store) == {NEWS: 2}
        front.lose_answer_to(b"EVALSHA", b"EVALSHA")
        published.publish(make_snapshot(2), 2)
        assert [info.version for info in published.infos()] == [1, 2]
        front.lose_answer_to(b"EVALSHA", b"HMGET", b"GET")
        assert lease.acquire() == 2
        assert versions(store) == {NEWS: 2}
        assert same(published.load(), make_snapshot(2))
        assert front.lost == 7


def test_a_server_that_forgot_the_scripts(redis_config: RedisConfig) -> None:
    store, published = checkpoints(None, redis_config), snapshots(None, redis_config)
    for version in (1, 2, 3):
        call(connect(redis_config), "SCRIPT FLUSH")
        store.commit(make_update(version))
        published.publish(make_snapshot(version), 1)
    assert same(store.load(NEWS), make_checkpoint(3))
    assert published.latest_version() == 3


def test_a_lost_index_heals_with_the_next_commit(redis_config: RedisConfig) -> None:
    store = checkpoints(None, redis_config)
    store.commit(make_update(1))
    call(connect(redis_config), "DEL", f"{redis_config.prefix}:news:checkpoints")
    assert versions(store) == {}
    store.commit(make_update(2))
    assert versions(store) == {NEWS: 2}


def test_what_somebody_else_wrote_is_named_or_left_alone(redis_config: RedisConfig) -> None:
    store = checkpoints(None, redis_config)
    store.commit(make_update(1))
    client, root = connect(redis_config), f"{redis_config.prefix}:news"
    call(client, "SADD", f"{root}:checkpoints", "junk", b"\xff:1", ":1", "news:x", "news:1x")
    assert versions(store) == {NEWS: 1}
    key = f"{root}:checkpoint:{{{NEWS.topic}:{NEWS.partition}}}"
    call(client, "HDEL", key, "base")
    assert same(store.load(NEWS), make_checkpoint(1))
    call(client, "HSET", key, "version", "x")
    with pytest.raises(CheckpointRefused, match=r"is no version.*delete that key") as caught:
        store.revisions()
    assert key in str(caught.value)
