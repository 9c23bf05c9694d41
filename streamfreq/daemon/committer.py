"""Commits partitions and says how it went."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from streamfreq.checkpoints.base import CheckpointStore
from streamfreq.clock import Clock
from streamfreq.errors import CheckpointConflict, ServiceUnavailable
from streamfreq.partition import Partition
from streamfreq.records import TopicPartition
from streamfreq.sources.base import DeadLetters
from streamfreq.telemetry import Health, Metrics
from streamfreq.tokenization.base import Tokenizer

log = logging.getLogger("streamfreq.daemon")


class Committer:
    """Writes checkpoints; any thread may call it."""

    def __init__(
        self,
        checkpoints: CheckpointStore,
        tokenizer: Tokenizer,
        dead_letters: DeadLetters | None,
        metrics: Metrics,
        health: Health,
        clock: Clock,
    ) -> None:
        self._checkpoints = checkpoints
        self._tokenizer = tokenizer
        self._dead_letters = dead_letters
        self._metrics = metrics
        self._health = health
        self._clock = clock
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._positions: dict[TopicPartition, int] = {}

    def commit(self, partitions: Sequence[Partition]) -> bool:
        """Commit each changed partition; whether all that is counted is now safe.

        1. Ask which versions the store has: one that went back gets everything again.
        2. Make the dead letters safe: once committed, their records are never read again.
        3. Write each partition's checkpoint. A conflict closes that partition only. When the
           store is away, stop at once: the next commit, or the next owner, does the rest.
        """
        try:
            with self._turn:  # a commit between 1 and 3 of another thread would look like a loss
                self._notice_losses(partitions)  # 1
                changed = [item for item in partitions if item.dirty]
                if changed and self._dead_letters is not None:
                    self._dead_letters.flush()  # 2
                labels = self._tokenizer.labels() if changed else {}
                for item in changed:
                    self._commit_one(item, labels)  # 3
        except ServiceUnavailable as error:
            self._metrics.service_failed("store")
            self._health.set("commits", False, str(error))
            if any(item.dirty for item in partitions):
                log.warning("not committed, nothing is lost, the next commit writes it: %s", error)
            return False
        self._health.set("commits", True)
        return True

    def take_positions(self) -> dict[TopicPartition, int]:
        """Next offsets committed since the last call, for lag tools."""
        with self._lock:
            positions, self._positions = self._positions, {}
            return positions

    def _notice_losses(self, partitions: Sequence[Partition]) -> None:
        stored = self._checkpoints.versions() if partitions else {}
        for item in partitions:
            version = stored.get(item.partition, 0)
            lost = item.stored_version_is(version)
            if lost is not None:
                log.error(
                    "the store lost the checkpoint of %s: version %d was committed, now %s is "
                    "there; it is written again from memory",
                    item.partition,
                    lost,
                    version or "none",
                )

    def _commit_one(self, item: Partition, labels: dict[int, str]) -> None:
        try:
            with self._metrics.commit_timer():
                offset = item.commit(self._checkpoints, self._clock.now_ms(), labels)
        except CheckpointConflict as error:
            self._metrics.conflict()
            log.warning("%s; our counts since the last commit are dropped", error)
            return
        if offset is not None:
            with self._lock:
                self._positions[item.partition] = offset
