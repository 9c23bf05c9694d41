"""URLs, what is told of them, and what importing costs; no server is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamfreq.checkpoints import open_checkpoints
from streamfreq.config import RedisConfig, SnapshotsConfig
from streamfreq.errors import ConfigError
from streamfreq.redis_client import connect, describe, server_name
from streamfreq.snapshots import open_lease, open_snapshots
from tests.conformance.values import make_snapshot, make_update, versions

SECRET = "s3cr3t"


def options_of(config: RedisConfig) -> dict[str, Any]:
    client: Any = connect(config)
    options: dict[str, Any] = client.connection_pool.connection_kwargs
    return options


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://localhost", "redis://localhost:6379/0"),
        ("redis://localhost/", "redis://localhost:6379/0"),
        (f"redis://user:{SECRET}@db.example:7000/3", "redis://db.example:7000/3"),
        (f"redis://:{SECRET}@db.example?db=4", "redis://db.example:6379/4"),
        (f"rediss://:{SECRET}@db.example/1?ssl_cert_reqs=none", "rediss://db.example:6379/1"),
        ("redis://[::1]:6380/2", "redis://[::1]:6380/2"),
        ("unix:///run/the.sock", "unix:///run/the.sock"),
        (f"unix://user:{SECRET}@/run/the.sock?db=2", "unix:///run/the.sock?db=2"),
    ],
)
def test_a_server_is_named_without_its_secrets(url: str, name: str) -> None:
    config = RedisConfig(url=url)
    assert describe(config) == name
    assert server_name(connect(config)) == name


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        f"http://:{SECRET}@localhost",
        f"redis://:{SECRET}@localhost:port",
        f"redis://:{SECRET}@localhost:99999",
        f"redis://:pa/{SECRET}@localhost",
        f"redis://:{SECRET}@[::1",
        f"redis://:{SECRET}@localhost/{SECRET}",
        f"redis://:{SECRET}@localhost/-1",
        f"redis://localhost?password={SECRET}",
        f"redis://localhost?{SECRET}=1",
        f"rediss://localhost?ssl_cert_reqs={SECRET}",
        "unix://",
        "unix://host/run/the.sock",
        "unix:///run/the.sock?db=x",
    ],
)
def test_a_url_that_can_not_be_right(url: str) -> None:
    for work in (describe, connect):
        with pytest.raises(ConfigError) as caught:
            work(RedisConfig(url=url))
        line = str(caught.value)
        assert line.startswith("redis.url: ")
        assert SECRET not in line
        assert "\n" not in line


def test_passwords_come_from_the_url_or_from_their_own_fields() -> None:
    options = options_of(RedisConfig(url="redis://us%40er:p%2Fw@localhost"))
    assert (options["username"], options["password"]) == ("us@er", "p/w")
    separate = RedisConfig.model_validate(
        {"url": "redis://a:b@localhost", "username": "x", "password": "y"}
    )
    options = options_of(separate)
    assert (options["username"], options["password"]) == ("x", "y")
    options = options_of(RedisConfig(url="redis://localhost"))
    assert (options["username"], options["password"]) == (None, None)


def test_timeouts_retries_and_health_checks() -> None:
    options = options_of(RedisConfig(timeout_ms=250))
    assert options["socket_timeout"] == options["socket_connect_timeout"] == 0.25
    assert options["retry"].get_retries() == 0, "redis-py's own repeats nest"
    assert options["health_check_interval"] > 0


def test_files_for_tls(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.touch()
    options = options_of(RedisConfig(url="rediss://localhost", ssl_cafile=str(ca)))
    assert options["ssl_ca_certs"] == str(ca)
    assert (options["ssl_cert_reqs"], options["ssl_check_hostname"]) == ("required", True)
    options = options_of(RedisConfig(url="rediss://localhost?ssl_check_hostname=false"))
    assert (options["ssl_cert_reqs"], options["ssl_check_hostname"]) == ("required", False)
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        config = RedisConfig.model_validate({"url": "rediss://localhost", name: "/no/such.pem"})
        with pytest.raises(ConfigError, match=rf"redis\.{name}: there is no file /no/such\.pem"):
            connect(config)


@pytest.mark.parametrize("url", ["unix:///run/the.sock", "redis://localhost/1"])
def test_what_a_cluster_can_not_do(url: str) -> None:
    with pytest.raises(ConfigError, match=r"redis\.cluster"):
        connect(RedisConfig(url=url, cluster=True))


def test_memory_is_shared_by_url_prefix_and_job() -> None:
    config = RedisConfig(url="memory://test_memory_is_shared")
    settings = SnapshotsConfig()
    open_checkpoints(config, "news").commit(make_update(1))
    open_snapshots(config, settings, "news").publish(make_snapshot(1), 1)
    assert open_lease(config, settings, "news", "a").acquire() == 2
    assert describe(config) == "memory://"
    assert len(versions(open_checkpoints(config, "news"))) == 1
    assert open_snapshots(config, settings, "news").latest_version() == 1
    assert open_lease(config, settings, "news", "b").acquire() is None
    for other, job in (
        (config, "else"),
        (config.model_copy(update={"prefix": "else"}), "news"),
        (config.model_copy(update={"url": "memory://else"}), "news"),
    ):
        assert versions(open_checkpoints(other, job)) == {}
        assert open_snapshots(other, settings, job).latest_version() == 0
        assert open_lease(other, settings, job, "b").acquire() == 1


def test_importing_does_not_load_the_client() -> None:
    program = (
        "import sys, streamfreq.redis_client, streamfreq.checkpoints, streamfreq.snapshots,"
        " streamfreq.checkpoints.redis, streamfreq.snapshots.redis;"
        "sys.exit('redis' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
