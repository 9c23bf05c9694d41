"""The Kafka client's own log, made fit for ours: no tracebacks, no torrents while a broker is away.

It also is the only place where the client tells why a connection failed.
"""

from __future__ import annotations

import logging
import time

import kafka.errors as kafka_errors

_REPEAT_SECONDS = 60.0
_log = logging.getLogger("streamfreq.sources.kafka.client")

_ROUTINE = (
    "Rebalance listener %s.%s",  # its advice is for listeners that block the client's thread
    "Topic %s not found in cluster metadata",  # the source says it in its own words
    "No partition metadata for topic %s",
    "No node available for metadata refresh",
)
_REFUSALS = (
    kafka_errors.AuthorizationError,
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
)


class _Forwarder(logging.Handler):
    """Passes warnings on without traceback, each kind at most once a minute.

    What goes wrong on the network is kept as `failure` and passed on at DEBUG: the source raises
    it in one line of its own.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said_at: dict[str, float] = {}
        self.failure: Exception | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Forward one of the client's log records."""
        kind = str(record.msg)
        if kind.startswith(_ROUTINE):
            return
        failure = next((arg for arg in _args(record) if isinstance(arg, Exception)), None)
        if failure is not None and _telling(failure) >= _telling(self.failure):
            # Its traceback would keep the client's frames, and so a socket, alive.
            self.failure = failure.with_traceback(None)
        of_network = record.name.startswith("kafka.net") or _telling(failure) > 0
        level = logging.DEBUG if of_network else logging.WARNING
        now = time.monotonic()
        if now - self._said_at.get(kind, -_REPEAT_SECONDS) >= _REPEAT_SECONDS:
            self._said_at[kind] = now
            _log.log(level, "kafka client: %s", " ".join(record.getMessage().split()))


_forwarder = _Forwarder()


def tame_client_log() -> None:
    """Route the client's warnings through ours, drop the rest; safe to call again."""
    client = logging.getLogger("kafka")
    if _forwarder not in client.handlers:
        client.addHandler(_forwarder)
        client.setLevel(logging.WARNING)
        client.propagate = False
    forget_failure()


def last_failure() -> Exception | None:
    """The most telling reason why the client could not connect, since `forget_failure`."""
    return _forwarder.failure


def forget_failure() -> None:
    """It is connected (or tries anew)."""
    _forwarder.failure = None


def _args(record: logging.LogRecord) -> tuple[object, ...]:
    return record.args if isinstance(record.args, tuple) else ()


def _telling(failure: object) -> int:
    """2: why the broker refused us; 1: that it can't be reached; 0: not of the connection."""
    if isinstance(failure, _REFUSALS) or "Handshake failed" in str(failure):
        return 2
    # The first tries tell more than the last one, which is cut off by the time limit.
    if isinstance(failure, kafka_errors.KafkaTimeoutError | kafka_errors.RequestTimedOutError):
        return 0
    return int(isinstance(failure, kafka_errors.RetriableError))
