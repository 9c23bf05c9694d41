"""What is left on the server, and which commands it sees."""

from __future__ import annotations

from typing import Any

import pytest

from streamfreq.checkpoints import open_checkpoints
from streamfreq.codec import Checkpoint
from streamfreq.config import RedisConfig, SnapshotsConfig
from streamfreq.records import TopicPartition
from streamfreq.redis_client import Client, call, connect
from streamfreq.snapshots import open_lease, open_snapshots
from tests.conformance.values import NEWS, make_changes, make_snapshot, make_update
from tests.services.redis import RedisServer

pytestmark = pytest.mark.redis_server

RETAIN = 5
# latest, floor, index, pinned, fence, lease; stale only while it is marked.
KEYS_OF_A_JOB = 6


@pytest.fixture
def empty_config(redis_server: RedisServer, redis_config: RedisConfig) -> RedisConfig:
    """A database of its own, with nothing in it."""
    config = redis_config.model_copy(update={"url": f"redis://127.0.0.1:{redis_server.port}/15"})
    call(connect(config), "FLUSHDB")
    return config


def test_keys_are_bounded(empty_config: RedisConfig) -> None:
    settings = SnapshotsConfig(retain=RETAIN)
    store = open_snapshots(empty_config, settings, "news")
    fence = open_lease(empty_config, settings, "news", "me").acquire()
    assert fence is not None
    client = connect(empty_config)
    for version in range(1, 501):
        store.publish(make_snapshot(version, vocab_size=5), fence)
        if version == 100:
            store.set_pinned(version, True)
            store.mark_stale(1)
        assert call(client, "DBSIZE") <= RETAIN + 1 + KEYS_OF_A_JOB
    assert call(client, "DBSIZE") == RETAIN + 1 + KEYS_OF_A_JOB
    assert [info.version for info in store.infos()] == [100, *range(496, 501)]
    assert call(client, "HLEN", f"{empty_config.prefix}:{{news}}:index") == RETAIN + 1
    assert call(client, "SCARD", f"{empty_config.prefix}:{{news}}:pinned") == 1


def test_checkpoints_leave_one_key_each_and_an_index(empty_config: RedisConfig) -> None:
    store = open_checkpoints(empty_config, "news")
    for version in range(1, 20):
        for number in range(4):
            store.commit(make_update(version, partition=TopicPartition("a.b", number)))
    assert call(connect(empty_config), "DBSIZE") == 4 + 1
    for partition in store.revisions():
        assert store.delete(partition)
    assert call(connect(empty_config), "DBSIZE") == 0


def test_documented_keys(empty_config: RedisConfig) -> None:
    open_snapshots(empty_config, SnapshotsConfig(), "news").publish(make_snapshot(7), 1)
    open_checkpoints(empty_config, "news").commit(
        make_update(1, partition=TopicPartition("a/b c", 3))
    )
    client = connect(empty_config)
    prefix = empty_config.prefix
    assert call(client, "GET", f"{prefix}:{{news}}:latest") == b"7"
    assert call(client, "GETRANGE", f"{prefix}:{{news}}:snapshot:7", 8, 8) == b"{"
    stored = f"{prefix}:news:checkpoint:{{a%2Fb%20c:3}}"
    assert call(client, "HMGET", stored, "version", "next_offset") == [b"1", b"1000"]
    assert call(client, "PTTL", f"{prefix}:{{news}}:snapshot:7") == -1


def test_a_publication_sends_a_hint(redis_server: RedisServer, empty_config: RedisConfig) -> None:
    client: Any = connect(empty_config)
    with client.pubsub() as listener:
        listener.subscribe(f"{empty_config.prefix}:{{news}}:published")
        assert listener.get_message(timeout=5)["type"] == "subscribe"
        open_snapshots(empty_config, SnapshotsConfig(), "news").publish(make_snapshot(7), 1)
        assert listener.get_message(timeout=5)["data"] == b"7"


def commands_seen(client: Client) -> dict[str, Any]:
    stats: dict[str, Any] = call(client, "INFO", "commandstats")
    return {name.removeprefix("cmdstat_").lower(): value for name, value in stats.items()}


def test_nothing_looks_through_all_keys(redis_kind: str) -> None:
    with RedisServer(redis_kind) as server:
        config = server.config()
        client = connect(config)
        call(client, "CONFIG RESETSTAT")
        checkpoints = open_checkpoints(config, "news")
        checkpoints.commit(make_update(1))
        checkpoints.load(NEWS)
        checkpoints.revisions()
        store = open_snapshots(config, SnapshotsConfig(retain=1), "news")
        lease = open_lease(config, SnapshotsConfig(), "news", "me")
        for version in (1, 2, 3):
            store.publish(make_snapshot(version), lease.acquire() or 0)
            store.set_pinned(version, version == 1)
        store.load()
        store.infos()
        store.mark_stale(1)
        store.stale_since_ms()
        lease.release()
        checkpoints.delete(NEWS)
        seen = commands_seen(client)
        assert {"evalsha", "hget", "smembers"} <= seen.keys()
        wide = {"keys", "scan", "randomkey", "sort", "flushdb", "flushall", "dbsize"}
        assert wide.isdisjoint(seen)


def test_what_a_reader_has_is_not_sent_again(redis_kind: str) -> None:
    with RedisServer(redis_kind) as server:
        store = open_checkpoints(server.config(), "news")
        client = connect(server.config())

        def bytes_for(known: Checkpoint | None) -> int:
            before = call(client, "INFO", "stats")["total_net_output_bytes"]
            store.load(NEWS, known)
            after: int = call(client, "INFO", "stats")["total_net_output_bytes"]
            return after - before

        store.commit(make_update(1))
        known = store.load(NEWS)
        store.commit(make_update(2, changes=make_changes([3])))
        whole, change = bytes_for(None), bytes_for(known)
        nothing = bytes_for(store.load(NEWS))
        assert nothing < change < whole
        assert change - nothing < (whole - nothing) * 0.75
