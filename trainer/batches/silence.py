"""A stream in which nothing comes is told once, and so is its first record then."""

from __future__ import annotations

import logging
from collections.abc import Collection

from streamfreq.records import TopicPartition

log = logging.getLogger("trainer.batches")

SILENCE_SECONDS = 30.0


class Silence:
    """Watches whether records come; times are monotonic seconds."""

    def __init__(self, opened_at: float, records: int) -> None:
        self._opened_at = opened_at
        self._records = records
        self._told = False
        self._over = False

    def look(self, now: float, records: int, partitions: Collection[TopicPartition]) -> None:
        """`records` were read until `now`, from these partitions."""
        if self._over:
            return
        waited_seconds = now - self._opened_at
        if records > self._records:
            self._over = True
            if self._told:
                log.info("the first record came after %.0f s", waited_seconds)
        elif not self._told and waited_seconds > SILENCE_SECONDS:
            self._told = True
            names = " ".join(map(str, sorted(partitions))) or "any partition"
            log.warning("no record yet from %s: training waits for the stream", names)
