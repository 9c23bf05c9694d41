"""The connection to Redis, and the one place where its errors become ours.

Any server that speaks the protocol will do (Redis 6 or later, Valkey); redis-py is imported when a
connection is made. Commands are repeated after a lost connection or a timeout, with jittered
exponential back-off, so whatever is sent through here must be safe to send twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from streamfreq.config import RedisConfig
from streamfreq.errors import ConfigError, ServiceUnavailable

RETRIES = 3
"""How often a command is sent again after a lost connection or a timeout."""

_BACKOFF_BASE_SECONDS = 0.05
_BACKOFF_CAP_SECONDS = 1.0
_HEALTH_CHECK_SECONDS = 30
_LONGEST_DETAIL = 200
_SCHEMES = ("redis", "rediss", "unix")
_CERT_REQS = ("none", "optional", "required")


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

        with guard(client):
            try:
                return client.execute_command("EVALSHA", self._sha, len(keys), *keys, *args)
            except NoScriptError:
                # EVAL also makes the script known; a server forgets it when it starts anew.
                return client.execute_command("EVAL", self._text, len(keys), *keys, *args)


def call(client: Client, *command: str | bytes | int) -> Any:
    """The answer to one command; raises ServiceUnavailable."""
    with guard(client):
        return client.execute_command(*command)


def connect(config: RedisConfig) -> Client:
    """A client for the configured server, safe to share between threads.

    A single server is first contacted by the first command, a cluster at once. Raises ConfigError
    for a URL or file that can't be right, ServiceUnavailable when a cluster can't be reached.
    """
    from redis import Redis
    from redis.backoff import ExponentialWithJitterBackoff
    from redis.cluster import RedisCluster
    from redis.retry import Retry

    endpoint = _parse(config)
    timeout_seconds = config.timeout_ms / 1000
    retry = Retry(
        ExponentialWithJitterBackoff(base=_BACKOFF_BASE_SECONDS, cap=_BACKOFF_CAP_SECONDS), RETRIES
    )
    options: dict[str, Any] = {
        "username": config.username or endpoint.username or None,
        "password": config.password.get_secret_value() or endpoint.password or None,
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "health_check_interval": _HEALTH_CHECK_SECONDS,
        "client_name": "streamfreq",
        # Every server speaks RESP2, and no answer used here gains by RESP3.
        "protocol": 2,
        **_tls_options(config, endpoint),
    }
    if not config.cluster:
        if endpoint.scheme == "unix":
            return Redis(unix_socket_path=endpoint.path, db=endpoint.db, retry=retry, **options)
        return Redis(host=endpoint.host, port=endpoint.port, db=endpoint.db, retry=retry, **options)
    with _translated(endpoint.name, _secrets(options)):
        return RedisCluster(host=endpoint.host, port=endpoint.port, retry=retry, **options)


def is_memory(config: RedisConfig) -> bool:
    """Whether the URL asks for the stores of this process (memory://NAME) in place of a server."""
    return config.url.startswith("memory://")


def ping(client: Client) -> None:
    """Raises ServiceUnavailable unless the server answers."""
    call(client, "PING")


def describe(config: RedisConfig) -> str:
    """The server's URL without user, password and options; raises ConfigError when it is wrong."""
    return "memory://" if is_memory(config) else _parse(config).name


def server_name(client: Client) -> str:
    """The same for a client that `connect` made."""
    source: Any = client
    manager = getattr(source, "nodes_manager", None)
    if manager is not None:
        node = next(iter(manager.startup_nodes.values()))
        tls = bool(manager.connection_kwargs.get("ssl"))
        return _Endpoint("rediss" if tls else "redis", host=node.host, port=node.port).name
    options = source.connection_pool.connection_kwargs
    db = int(options.get("db") or 0)
    if "path" in options:
        return _Endpoint("unix", path=options["path"], db=db).name
    tls = any("SSL" in base.__name__ for base in source.connection_pool.connection_class.__mro__)
    scheme = "rediss" if tls else "redis"
    return _Endpoint(scheme, host=options["host"], port=options["port"], db=db).name


@contextmanager
def guard(client: Client) -> Iterator[None]:
    """Turns redis-py's errors into ServiceUnavailable: one line, the server, the way out."""
    source: Any = client
    owner = getattr(source, "nodes_manager", None) or source.connection_pool
    with _translated(server_name(client), _secrets(owner.connection_kwargs)):
        yield


@dataclass(frozen=True, slots=True)
class _Endpoint:
    scheme: str
    host: str = "localhost"
    port: int = 6379
    path: str = ""
    db: int = 0
    username: str = ""
    password: str = ""
    cert_reqs: str = "required"
    check_hostname: bool = True

    @property
    def name(self) -> str:
        if self.scheme == "unix":
            return f"unix://{self.path}" + (f"?db={self.db}" if self.db else "")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}/{self.db}"


def _parse(config: RedisConfig) -> _Endpoint:
    # The URL itself is never quoted: it may hold a password, and in any place when it is malformed.
    try:
        parts = urlsplit(config.url)
        port, host = parts.port or 6379, parts.hostname
    except ValueError:
        raise ConfigError(
            "redis.url: host or port can't be read; write redis://HOST:PORT/DB, and give a "
            "password with / : @ or # as redis.password"
        ) from None
    if parts.scheme not in _SCHEMES:
        raise ConfigError(
            "redis.url: must begin with redis://, rediss:// (TLS), unix:// or memory://"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    _check_options(options)
    unix = parts.scheme == "unix"
    path = unquote(parts.path)
    if unix and (not path or parts.hostname):
        raise ConfigError("redis.url: write unix:///path/to/the.sock")
    number = options.get("db", "0" if unix else path.strip("/") or "0")
    if not (number.isascii() and number.isdigit()):
        raise ConfigError("redis.url: the database must be a number, as in redis://HOST:PORT/0")
    if config.cluster and (unix or int(number)):
        raise ConfigError(
            "redis.cluster: a cluster has no Unix socket and only database 0; "
            "give redis.url as redis://HOST:PORT"
        )
    return _Endpoint(
        parts.scheme,
        host=unquote(host or "localhost"),
        port=port,
        path=path if unix else "",
        db=int(number),
        username=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        cert_reqs=options.get("ssl_cert_reqs", "required"),
        check_hostname=options.get("ssl_check_hostname", "true") == "true",
    )


def _check_options(options: dict[str, str]) -> None:
    allowed = {"db": None, "ssl_cert_reqs": _CERT_REQS, "ssl_check_hostname": ("true", "false")}
    for name, value in options.items():
        if name not in allowed:
            raise ConfigError(
                f"redis.url: unknown option; allowed after the ? are {', '.join(allowed)}"
            )
        values = allowed[name]
        if values is not None and value not in values:
            raise ConfigError(f"redis.url: {name} must be one of {', '.join(values)}")


def _tls_options(config: RedisConfig, endpoint: _Endpoint) -> dict[str, Any]:
    files = {
        "ssl_cafile": config.ssl_cafile,
        "ssl_certfile": config.ssl_certfile,
        "ssl_keyfile": config.ssl_keyfile,
    }
    for name, path in files.items():
        if path and not Path(path).is_file():
            raise ConfigError(f"redis.{name}: there is no file {path}")
    if endpoint.scheme != "rediss":
        return {}
    return {
        "ssl": True,
        "ssl_ca_certs": config.ssl_cafile or None,
        "ssl_certfile": config.ssl_certfile or None,
        "ssl_keyfile": config.ssl_keyfile or None,
        "ssl_cert_reqs": endpoint.cert_reqs,
        "ssl_check_hostname": endpoint.check_hostname and endpoint.cert_reqs != "none",
    }


def _secrets(options: dict[str, Any]) -> list[str]:
    return [str(options["password"])] if options.get("password") else []


@contextmanager
def _translated(name: str, secrets: list[str]) -> Iterator[None]:
    from redis.exceptions import DataError, RedisClusterException, RedisError

    try:
        yield
    except DataError:
        raise
    except (RedisError, RedisClusterException, OSError) as error:
        line = f"{name} {_explain(error)}"
        for secret in secrets:
            line = line.replace(secret, "***")
        raise ServiceUnavailable(line) from error


_UNREACHABLE = "can't be reached"
_REFUSES_USER = (
    "refuses the user or the password; set redis.username and redis.password "
    "(STREAMFREQ__REDIS__PASSWORD)"
)
_NOT_A_CLUSTER = "is not a cluster; set redis.cluster = false"
_IS_A_CLUSTER = "belongs to a cluster; set redis.cluster = true"
_CLUSTER_DOWN = "is in a cluster with slots that no node serves; wait for it, or repair the cluster"
_FULL = "is out of memory (maxmemory); raise its limit, or lower snapshots.retain"

# What to look for in the class names and texts of an error and its causes, most telling first, and
# what to tell a person. redis-py takes the first word of some answers away when it picks the class.
_BY_TEXT = (
    ("noauth", _REFUSES_USER),
    ("wrongpass", _REFUSES_USER),
    ("invalid username-password", _REFUSES_USER),
    ("invalid password", _REFUSES_USER),
    ("without any password configured", "has no password; leave redis.password empty"),
    ("cluster mode is not enabled", _NOT_A_CLUSTER),
    ("cluster support disabled", _NOT_A_CLUSTER),
    ("clusterdown", _CLUSTER_DOWN),
    ("not covered", _CLUSTER_DOWN),
    ("movederror", _IS_A_CLUSTER),
    ("crossslot", _IS_A_CLUSTER),
    ("outofmemoryerror", _FULL),
    ("oom command not allowed", _FULL),
    ("misconf", "can't save to its disk (MISCONF) and so takes no writes; see the server's log"),
    ("noreplicas", "takes no writes while too few replicas are connected (NOREPLICAS)"),
    ("masterdown", "is a replica that has lost its primary; point redis.url at the primary"),
    ("loading the dataset", "is still loading its data; try again soon"),
    ("read only replica", "is a read-only replica; point redis.url at the primary"),
    ("readonly", "is a read-only replica; point redis.url at the primary"),
    ("max number of clients", "has too many clients; raise its limit (maxclients)"),
    ("db index", "does not have that database; choose a smaller number in redis.url"),
    ("invalid database", "does not have that database; choose a smaller number in redis.url"),
    ("certificate", "fails the TLS check; set redis.ssl_cafile to the authority that signed it"),
    ("wrong version number", "does not speak TLS; use redis:// in redis.url"),
    ("record layer failure", "does not speak TLS; use redis:// in redis.url"),
    ("invalidresponse", "does not speak the Redis protocol; is redis.url right?"),
)


def _explain(error: BaseException) -> str:
    from redis.exceptions import AuthenticationError, AuthenticationWrongNumberOfArgsError
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import TimeoutError as RedisTimeoutError

    chain = _chain(error)
    text = " ".join(f"{type(one).__name__} {one}" for one in chain).lower()
    detail = " ".join(str(error).split())[:_LONGEST_DETAIL]
    if any(
        isinstance(one, AuthenticationError | AuthenticationWrongNumberOfArgsError) for one in chain
    ):
        return _REFUSES_USER
    for part, explanation in _BY_TEXT:
        if part in text:
            needs_detail = "certificate" in part
            return f"{explanation} ({detail})" if needs_detail else explanation
    if any(isinstance(one, RedisTimeoutError | TimeoutError) for one in chain):
        return (
            "does not answer in time (redis.timeout_ms); is it busy, or is a firewall in the way?"
        )
    if isinstance(error, RedisConnectionError | OSError) or "cannot be connected" in text:
        return f"{_UNREACHABLE}; is it running, and is redis.url right? ({detail})"
    return f"answers with an error: {detail}"


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    return chain
