"""The Kafka client's own log, made fit for ours: one line per kind of trouble, no tracebacks."""

from __future__ import annotations

import logging
import time

_REPEAT_SECONDS = 60.0
_log = logging.getLogger("streamfreq.sources.kafka.client")

_ROUTINE = (
    "Rebalance listener %s.%s",  # its advice is for listeners that block the client's thread
    "Topic %s not found in cluster metadata",  # the source says it in its own words
    "subscription unchanged",
    "slow task",
)


class _Forwarder(logging.Handler):
    """Passes warnings on without traceback, each kind at most once a minute."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said_at: dict[str, float] = {}
        self.last_words = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Forward one of the client's log records."""
        kind = str(record.msg)
        if kind.startswith(_ROUTINE):
            return
        words = " ".join(record.getMessage().split())
        self.last_words = words
        now = time.monotonic()
        if now - self._said_at.get(kind, -_REPEAT_SECONDS) >= _REPEAT_SECONDS:
            self._said_at[kind] = now
            _log.warning("kafka client: %s", words)


_forwarder = _Forwarder()


def tame_client_log() -> None:
    """Route the client's warnings through ours, drop the rest; safe to call again."""
    client = logging.getLogger("kafka")
    if _forwarder not in client.handlers:
        client.addHandler(_forwarder)
        client.setLevel(logging.WARNING)
        client.propagate = False
    _forwarder.last_words = ""


def last_words() -> str:
    """The client's latest warning since `tame_client_log`: why it could not connect."""
    return _forwarder.last_words
