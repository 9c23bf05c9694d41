"""Says which of the configured topics are not there: not yet, or not any more."""

from __future__ import annotations

import logging
from collections.abc import Collection

_log = logging.getLogger(__name__)

GONE_AFTER_SECONDS = 10.0
"""The brokers may not know a topic for a moment, while one of them comes or goes."""


class TopicWatch:
    """Book-keeping over topics that come and go; each change is logged once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._missing_since: dict[str, float] = {}
        self._gone: set[str] = set()

    @property
    def awaited(self) -> bool:
        """Whether a topic is missing that may be there any moment; not so once it was deleted."""
        return bool(set(self._missing_since) - self._gone)

    def look(self, topics: Collection[str], missing: Collection[str], now: float) -> None:
        """Of `topics` those in `missing` are not there, at this monotonic time in seconds."""
        for topic in sorted(topics):
            if topic in missing:
                self._absent(topic, now)
            else:
                self._present(topic)

    def _absent(self, topic: str, now: float) -> None:
        if topic not in self._missing_since:
            self._missing_since[topic] = now
            if topic not in self._seen:
                _log.warning("topic %s does not exist yet; it is read once it does", topic)
        lasting = now - self._missing_since[topic] >= GONE_AFTER_SECONDS
        if lasting and topic in self._seen and topic not in self._gone:
            self._gone.add(topic)
            _log.warning(
                "topic %s is gone: what was counted of it stays counted, the others are read on",
                topic,
            )

    def _present(self, topic: str) -> None:
        told = topic in self._gone or topic not in self._seen
        if self._missing_since.pop(topic, None) is not None and told:
            _log.info("topic %s exists now", topic)
        self._seen.add(topic)
        self._gone.discard(topic)
