"""What each error of redis-py means to a person: one line with the way out, never a secret."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from streamfreq.errors import ServiceUnavailable

_LONGEST_DETAIL = 200

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


@contextmanager
def translated(name: str, secrets: Sequence[str]) -> Iterator[None]:
    """Turns redis-py's errors into ServiceUnavailable: `name` of the server and what is wrong."""
    from redis.exceptions import DataError, RedisClusterException, RedisError

    try:
        yield
    except DataError:
        raise
    except (RedisError, RedisClusterException, OSError) as error:
        detail = " ".join(str(error).split())[:_LONGEST_DETAIL]
        for secret in secrets:
            detail = detail.replace(secret, "***")
        raise ServiceUnavailable(f"{name} {_explain(error, detail)}") from error


def _explain(error: BaseException, detail: str) -> str:
    from redis.exceptions import AuthenticationError, AuthenticationWrongNumberOfArgsError
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import TimeoutError as RedisTimeoutError

    chain = _chain(error)
    text = " ".join(f"{type(one).__name__} {one}" for one in chain).lower()
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
