"""A server that dies, hangs, is full, or is set up in another way than the configuration says."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from streamfreq.checkpoints import open_checkpoints
from streamfreq.config import RedisConfig, SnapshotsConfig
from streamfreq.errors import ServiceUnavailable
from streamfreq.redis_client import call, connect, describe, ping, server_name
from streamfreq.snapshots import open_lease, open_snapshots
from tests.conformance.values import (
    NEWS,
    make_checkpoint,
    make_snapshot,
    make_update,
    same,
    versions,
)
from tests.faults.redis_faults import AnsweringServer
from tests.services.front import Front
from tests.services.redis import RedisNodes, RedisServer
from tests.services.tls import Certificates, make_certificates

SECRET = "s3cr3t-word"

pytestmark = pytest.mark.redis_server


def refusal(work: Callable[[], object]) -> str:
    """The one line with which `work` says that the server can't be used; never with a secret."""
    with pytest.raises(ServiceUnavailable) as caught:
        work()
    line = str(caught.value)
    assert "\n" not in line
    assert SECRET not in line
    assert len(line) < 400
    return line


def use(config: RedisConfig) -> None:
    """A commit and a publication, read again."""
    store = open_checkpoints(config, "news")
    store.commit(make_update(1))
    assert same(store.load(NEWS), make_checkpoint(1))
    assert versions(store) == {NEWS: 1}
    published = open_snapshots(config, SnapshotsConfig(), "news")
    fence = open_lease(config, SnapshotsConfig(), "news", "me").acquire()
    assert fence is not None
    published.publish(make_snapshot(1), fence)
    assert same(published.load(), make_snapshot(1))


def test_killed_and_started_again(redis_kind: str) -> None:
    with RedisServer(redis_kind, appendonly=True) as server:
        config = server.config()
        store = open_checkpoints(config, "news")
        published = open_snapshots(config, SnapshotsConfig(), "news")
        store.commit(make_update(1))
        published.publish(make_snapshot(1), 1)
        server.kill()
        line = refusal(lambda: store.commit(make_update(2)))
        assert line.startswith(f"redis://127.0.0.1:{server.port}/0 can't be reached")
        for work in (published.load, published.infos, store.revisions, published.latest_version):
            assert "can't be reached" in refusal(work)
        server.start()
        store.commit(make_update(2))
        published.publish(make_snapshot(2), 1)
        assert same(store.load(NEWS), make_checkpoint(2))
        assert [info.version for info in published.infos()] == [1, 2]


def test_started_again_with_nothing(redis_kind: str) -> None:
    with RedisServer(redis_kind) as server:
        store = open_checkpoints(server.config(), "news")
        store.commit(make_update(1))
        server.kill()
        server.start()
        assert versions(store) == {}
        store.commit(make_update(1, seed=2))
        assert same(store.load(NEWS), make_checkpoint(1, seed=2))


def test_one_that_hangs(redis_kind: str) -> None:
    with RedisServer(redis_kind) as server:
        store = open_checkpoints(server.config(timeout_ms=100), "news")
        store.commit(make_update(1))
        os.kill(server.pid, signal.SIGSTOP)
        try:
            assert "does not answer in time" in refusal(lambda: store.commit(make_update(2)))
        finally:
            os.kill(server.pid, signal.SIGCONT)
        store.commit(make_update(2))
        assert versions(store) == {NEWS: 2}


def test_a_full_one_takes_all_or_nothing(redis_kind: str) -> None:
    """A server grows until it refuses: what was refused can't be seen, all before can."""
    with RedisServer(redis_kind) as server:
        config = server.config()
        used = call(connect(config), "INFO", "memory")["used_memory"]
        call(connect(config), "CONFIG SET", "maxmemory", used + 2_000_000)
        store = open_checkpoints(config, "news")
        published = open_snapshots(config, SnapshotsConfig(retain=1_000), "news")
        lines: set[str] = set()
        version = 0
        while not lines:
            version += 1
            try:
                published.publish(make_snapshot(version, vocab_size=10_000), 1)
                store.commit(make_update(version))
            except ServiceUnavailable as error:
                lines.add(str(error))
            assert version < 100
        # Something small may still fit; now nothing does.
        call(connect(config), "CONFIG SET", "maxmemory", 1)
        lines.add(refusal(lambda: store.commit(make_update(versions(store)[NEWS] + 1))))
        lines.add(refusal(lambda: published.publish(make_snapshot(999), 1)))
        assert {line.partition(" ")[2] for line in lines} == {
            "is out of memory (maxmemory); raise its limit, or lower snapshots.retain"
        }
        kept = [info.version for info in published.infos()]
        assert kept == list(range(1, published.latest_version() + 1))
        assert all(published.load(one) is not None for one in kept)
        checkpoint = store.load(NEWS)
        assert same(checkpoint, make_checkpoint(versions(store)[NEWS]))
        call(connect(config), "CONFIG SET", "maxmemory", 0)
        published.publish(make_snapshot(999), 1)
        assert published.latest_version() == 999


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("-LOADING Redis is loading the dataset in memory", "still loading its data"),
        ("-READONLY You can't write against a read only replica.", "is a read-only replica"),
        ("-OOM command not allowed when used memory > 'maxmemory'.", "is out of memory"),
        (
            "-ERR Error running script (call to f_0): @user_script:1: @user_script: 1: -OOM command"
            " not allowed when used memory > 'maxmemory'.",
            "is out of memory",
        ),
        ("-MISCONF Redis is configured to save RDB snapshots, but", "can't save to its disk"),
        ("-MASTERDOWN Link with MASTER is down", "has lost its primary"),
        ("-NOREPLICAS Not enough good replicas to write.", "too few replicas"),
        ("-CLUSTERDOWN Hash slot not served", "slots that no node serves"),
        ("-MOVED 3999 127.0.0.1:6381", "set redis.cluster = true"),
        ("-NOAUTH Authentication required.", "refuses the user or the password"),
        ("-NOPERM User x has no permissions to run the 'sadd' command", "has no permissions"),
        ("-ERR max number of clients reached", "has too many clients"),
        ("-WRONGTYPE Operation against a key holding the wrong kind", "answers with an error"),
        ("-ERR unknown command 'SADD'", "answers with an error"),
        ("HTTP/1.1 400 Bad Request", "does not speak the Redis protocol"),
    ],
)
def test_one_in_trouble(answer: str, expected: str) -> None:
    with AnsweringServer(answer) as server:
        config = RedisConfig.model_validate(
            {"url": f"redis://127.0.0.1:{server.port}", "password": "", "timeout_ms": 500}
        )
        store = open_checkpoints(config, "news")
        line = refusal(lambda: store.commit(make_update(1)))
        assert expected in line
        assert line.startswith(f"redis://127.0.0.1:{server.port}/0 ")


def test_a_replica(redis_kind: str) -> None:
    with RedisServer(redis_kind) as server:
        server.command("REPLICAOF", "127.0.0.1", 1)
        store = open_checkpoints(server.config(), "news")
        assert "is a read-only replica" in refusal(lambda: store.commit(make_update(1)))


def test_with_a_password(redis_kind: str) -> None:
    with RedisServer(redis_kind, password=SECRET) as server:
        use(server.config())
        in_the_url = f"redis://:{SECRET}@127.0.0.1:{server.port}/1"
        use(server.config(url=in_the_url, password=""))
        for wrong in (
            server.config(password=""),
            server.config(password=SECRET + "x"),
            server.config(username="nobody"),
            server.config(url=in_the_url.replace(SECRET, SECRET + "x"), password=""),
        ):
            assert "refuses the user or the password" in refusal(lambda: use(wrong))  # noqa: B023
            assert SECRET not in describe(wrong) + server_name(connect(wrong))


def test_with_a_user(redis_kind: str) -> None:
    with RedisServer(redis_kind) as server:
        server.command(
            *("ACL", "SETUSER", "counter", "on", f">{SECRET}", "~streamfreq:*", "+@all"),
            *("-@dangerous", "-@pubsub"),
        )
        use(server.config(username="counter", password=SECRET))
        other = server.config(username="counter", password=SECRET, prefix="else")
        assert "answers with an error" in refusal(lambda: use(other))
        server.command("CONFIG", "SET", "requirepass", "")
        wrong = server.config(password=SECRET)
        line = refusal(lambda: use(wrong))
        assert "has no password" in line or "refuses the user or the password" in line


def test_over_tls_before_any_server(redis_server: RedisServer, certificates: Certificates) -> None:
    with Front(redis_server.port, certificates) as front:
        check_tls(front.port, redis_server.config(prefix="tls"), certificates)


def test_over_its_own_tls(certificates: Certificates, tmp_path: Path) -> None:
    try:
        server = RedisServer("redis", tls=certificates)
    except KeyError:
        pytest.skip("no server with TLS of its own: install redis-server")
    with server:
        check_tls(server.port, server.config(), certificates)


def check_tls(port: int, config: RedisConfig, certificates: Certificates) -> None:
    secure = config.model_copy(
        update={"url": f"rediss://127.0.0.1:{port}/2", "ssl_cafile": str(certificates.ca)}
    )
    use(secure)
    assert server_name(connect(secure)) == describe(secure) == secure.url
    unknown = secure.model_copy(update={"ssl_cafile": ""})
    line = refusal(lambda: ping(connect(unknown)))
    assert "fails the TLS check; set redis.ssl_cafile" in line
    unchecked = unknown.model_copy(update={"url": secure.url + "?ssl_cert_reqs=none"})
    ping(connect(unchecked))
    plain = secure.model_copy(update={"url": f"redis://127.0.0.1:{port}", "timeout_ms": 300})
    refusal(lambda: ping(connect(plain)))


def test_tls_with_another_authority(
    redis_server: RedisServer, certificates: Certificates, tmp_path: Path
) -> None:
    other = make_certificates(tmp_path)
    with Front(redis_server.port, certificates) as front:
        config = redis_server.config(
            url=f"rediss://127.0.0.1:{front.port}", ssl_cafile=str(other.ca)
        )
        assert "fails the TLS check" in refusal(lambda: ping(connect(config)))


def test_tls_to_a_server_without_it(redis_server: RedisServer) -> None:
    config = redis_server.config(url=f"rediss://127.0.0.1:{redis_server.port}", timeout_ms=500)
    assert f"rediss://127.0.0.1:{redis_server.port}/0 " in refusal(lambda: ping(connect(config)))


def test_on_a_unix_socket(redis_kind: str) -> None:
    with RedisServer(redis_kind, unix=True, password=SECRET) as server:
        use(server.config())
        use(server.config(url=f"{server.url}?db=3"))
        assert server_name(connect(server.config())) == server.url
        server.shutdown()
        assert "can't be reached" in refusal(lambda: ping(connect(server.config())))


def test_on_a_numbered_database(redis_server: RedisServer, redis_config: RedisConfig) -> None:
    def numbered(number: int) -> RedisConfig:
        return redis_config.model_copy(
            update={"url": f"redis://127.0.0.1:{redis_server.port}/{number}"}
        )

    use(numbered(7))
    assert versions(open_checkpoints(numbered(7), "news")) == {NEWS: 1}
    assert versions(open_checkpoints(numbered(8), "news")) == {}
    line = refusal(lambda: use(numbered(4_000)))
    assert "does not have that database" in line


def test_a_cluster_loses_a_node(redis_kind: str) -> None:
    with RedisNodes(redis_kind) as cluster:
        config = cluster.config(timeout_ms=200)
        use(config)
        single = config.model_copy(update={"cluster": False})
        stores = [open_checkpoints(single, f"job {i}") for i in range(4)]
        lines = {refusal_or_none(lambda: store.commit(make_update(1))) for store in stores}  # noqa: B023
        assert any("set redis.cluster = true" in str(line) for line in lines)
        store = open_checkpoints(config, "news")
        published = [open_snapshots(config, SnapshotsConfig(), f"job{i}") for i in range(4)]
        cluster.nodes[1].kill()
        lines = {refusal_or_none(lambda: one.publish(make_snapshot(1), 1)) for one in published}  # noqa: B023
        lines -= {None}
        assert lines
        cluster.nodes[1].start()
        cluster.wait()
        for one in published:
            one.publish(make_snapshot(2), 1)
            assert one.latest_version() == 2
        assert versions(store) in ({}, {NEWS: 1})


def refusal_or_none(work: Callable[[], object]) -> str | None:
    try:
        work()
    except ServiceUnavailable as error:
        return str(error)
    return None


def test_cluster_mode_on_a_single_server(redis_server: RedisServer) -> None:
    config = redis_server.config(cluster=True)
    assert "set redis.cluster = false" in refusal(lambda: open_checkpoints(config, "news"))


def test_a_cluster_that_is_not_there() -> None:
    config = RedisConfig(url="redis://127.0.0.1:1", cluster=True, timeout_ms=200)
    assert "can't be reached" in refusal(lambda: open_checkpoints(config, "news"))
