"""The connection, and commands that are sent again after a lost connection or a timeout.

Repeats are made here and not inside redis-py, which nests them: a dead server would be tried 16
times. So one command waits at most four timeouts and a second before it fails.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from streamfreq.config import RedisConfig
from streamfreq.redis_client.endpoint import Endpoint, parse_endpoint, tls_options
from streamfreq.redis_client.explanations import translated

RETRIES = 3
"""How often a command is sent again after a lost connection.

Not after a timeout: the caller has waited for as long as the configuration allows.
"""

_BACKOFF_SECONDS = 0.05
_HEALTH_CHECK_SECONDS = 30

T = TypeVar("T")


class Client(Protocol):
    """What the adapters use of redis-py's `Redis` and `RedisCluster`."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command and return its answer."""
        ...

    def pipeline(self, transaction: Any = ...) -> Any:
        """Commands that are sent together."""
        ...


class Script:
    """A Lua script, sent by its hash; in full when the server does not know it yet."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def __call__(
        self, client: Client, keys: Sequence[str], args: Sequence[str | bytes | int]
    ) -> Any:
        """Run it on `keys`, which share one hash slot; raises ServiceUnavailable."""
        from redis.exceptions import NoScriptError

        def once() -> Any:
            try:
                return client.execute_command("EVALSHA", self._sha, len(keys), *keys, *args)
            except NoScriptError:
                # EVAL also makes the script known; a server forgets it when it starts anew.
                return client.execute_command("EVAL", self._text, len(keys), *keys, *args)

        return run(client, once)


def call(client: Client, *command: str | bytes | int) -> Any:
    """The answer to one command; raises ServiceUnavailable."""
    return run(client, lambda: client.execute_command(*command))


def run(client: Client, work: Callable[[], T]) -> T:
    """What `work` returns, done again when the connection breaks; raises ServiceUnavailable.

    `work` uses `client` and is safe to repeat: its first try may have been done, unheard.
    """
    source: Any = client
    owner = getattr(source, "nodes_manager", None) or source.connection_pool
    with translated(server_name(client), _secrets(owner.connection_kwargs)):
        for attempt in range(RETRIES):
            try:
                return work()
            except Exception as error:
                if not _may_pass(error):
                    raise
            # Jitter keeps the workers of a job from coming back all at once.
            time.sleep(_BACKOFF_SECONDS * 2**attempt * random.uniform(0.5, 1.5))
        return work()


def _may_pass(error: Exception) -> bool:
    """Whether the same command may succeed soon."""
    from redis.exceptions import AuthenticationError, ClusterDownError, SlotNotCoveredError
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import TimeoutError as RedisTimeoutError

    passing = (RedisConnectionError, ClusterDownError, SlotNotCoveredError)
    final = (AuthenticationError, RedisTimeoutError)
    return isinstance(error, passing) and not isinstance(error, final)


def connect(config: RedisConfig) -> Client:
    """A client for the configured server, safe to share between threads.

    A single server is first contacted by the first command, a cluster at once. Raises ConfigError
    for a URL or file that can't be right, ServiceUnavailable when a cluster can't be reached.
    """
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.cluster import RedisCluster
    from redis.retry import Retry

    endpoint = parse_endpoint(config)
    timeout_seconds = config.timeout_ms / 1000
    retry = Retry(NoBackoff(), 0)
    options: dict[str, Any] = {
        "username": config.username or endpoint.username or None,
        "password": config.password.get_secret_value() or endpoint.password or None,
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "health_check_interval": _HEALTH_CHECK_SECONDS,
        "client_name": "streamfreq",
        # Every server speaks RESP2, and no answer used here gains by RESP3.
        "protocol": 2,
        **tls_options(config, endpoint),
    }
    if not config.cluster:
        if endpoint.scheme == "unix":
            return Redis(unix_socket_path=endpoint.path, db=endpoint.db, retry=retry, **options)
        return Redis(host=endpoint.host, port=endpoint.port, db=endpoint.db, retry=retry, **options)
    with translated(endpoint.name, _secrets(options)):
        return RedisCluster(host=endpoint.host, port=endpoint.port, retry=retry, **options)


def is_memory(config: RedisConfig) -> bool:
    """Whether the URL asks for the stores of this process (memory://NAME) in place of a server."""
    return config.url.startswith("memory://")


def ping(client: Client) -> None:
    """Raises ServiceUnavailable unless the server answers."""
    call(client, "PING")


def describe(config: RedisConfig) -> str:
    """The server's URL without user, password and options; raises ConfigError when it is wrong."""
    return "memory://" if is_memory(config) else parse_endpoint(config).name


def server_name(client: Client) -> str:
    """The same for a client that `connect` made."""
    source: Any = client
    manager = getattr(source, "nodes_manager", None)
    if manager is not None:
        node = next(iter(manager.startup_nodes.values()))
        tls = bool(manager.connection_kwargs.get("ssl"))
        return Endpoint("rediss" if tls else "redis", host=node.host, port=node.port).name
    options = source.connection_pool.connection_kwargs
    db = int(options.get("db") or 0)
    if "path" in options:
        return Endpoint("unix", path=options["path"], db=db).name
    tls = any("SSL" in base.__name__ for base in source.connection_pool.connection_class.__mro__)
    scheme = "rediss" if tls else "redis"
    return Endpoint(scheme, host=options["host"], port=options["port"], db=db).name


def _secrets(options: dict[str, Any]) -> list[str]:
    return [str(options["password"])] if options.get("password") else []
