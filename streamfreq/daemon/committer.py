"""Commits partitions and says how it went."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from streamfreq.checkpoints.base import CheckpointStore
from streamfreq.clock import Clock
from streamfreq.codec import NO_REVISION
from streamfreq.errors import CheckpointConflict, ServiceUnavailable
from streamfreq.partition import Partition
from streamfreq.records import TopicPartition
from streamfreq.sources.base import FLUSH_TIMEOUT_SECONDS, DeadLetters
from streamfreq.telemetry import Health, Metrics
from streamfreq.tokenization.base import Tokenizer

log = logging.getLogger("streamfreq.daemon")

_URGENT_WAIT_SECONDS = 10.0
"""A single call to the store ends within its own timeout; a round of commits makes way."""


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
        self._hurry_lock = threading.Lock()
        self._hurried = 0
        self._rounds = 0
        self._positions: dict[TopicPartition, int] = {}

    def commit(self, partitions: Sequence[Partition], limit_seconds: float = math.inf) -> bool:
        """Commit each changed partition; whether all that is counted is now safe.

        1. Ask which revisions the store has: one that went back gets everything again.
        2. Make the dead letters safe: once committed, their records are never read again.
        3. Write each partition's checkpoint. A conflict closes that partition only. When the
           store is away, stop at once: the next commit, or the next owner, does the rest.

        With a limit nothing is begun after that time, for a group that waits: what is not
        committed then is read again by the next owner. Other calls make way for one with a limit.
        """
        deadline = self._clock.monotonic() + limit_seconds
        urgent = math.isfinite(limit_seconds)
        with self._waiting(urgent) as mine:
            if not mine:
                log.warning("no time to commit: what is not committed is read again")
                return False
            try:
                return self._commit_all(partitions, deadline, urgent)
            except ServiceUnavailable as error:
                self._metrics.service_failed("store")
                self._health.set("commits", False, str(error))
                if any(item.dirty for item in partitions):
                    log.warning(
                        "not committed, nothing is lost, the next commit writes it: %s", error
                    )
                return False

    @contextmanager
    def _waiting(self, urgent: bool) -> Iterator[bool]:
        """Hold the turn: a commit between 1 and 3 of another thread would look like a loss.

        Whoever has it is asked to hurry up when it is urgent; whether we got it.
        """
        with self._hurry_lock:
            self._hurried += urgent
        try:
            mine = self._turn.acquire(timeout=_URGENT_WAIT_SECONDS if urgent else -1)
        finally:
            with self._hurry_lock:
                self._hurried -= urgent
        try:
            yield mine
        finally:
            if mine:
                self._turn.release()

    def _commit_all(self, partitions: Sequence[Partition], deadline: float, urgent: bool) -> bool:
        self._notice_losses(partitions)  # 1
        changed = self._in_turn([item for item in partitions if item.dirty])
        if changed and self._dead_letters is not None:
            left = deadline - self._clock.monotonic()
            self._dead_letters.flush(max(0.1, min(left, FLUSH_TIMEOUT_SECONDS)))  # 2
        for done, item in enumerate(changed):
            if self._clock.monotonic() >= deadline:
                log.warning(
                    "%d of %d partitions were not committed in time; they are read again from "
                    "their last checkpoint",
                    *(len(changed) - done, len(changed)),
                )
                return False
            if self._hurried and not urgent:
                return False  # the next turn does the rest
            self._commit_one(item)  # 3
        self._health.set("commits", True)
        return True

    def _in_turn(self, changed: list[Partition]) -> list[Partition]:
        """Another one comes first each time, so that one that fails does not stop the others."""
        if not changed:
            return changed
        first = self._rounds % len(changed)
        self._rounds += 1
        return changed[first:] + changed[:first]

    def restored(self, partition: TopicPartition, next_offset: int) -> None:
        """A partition begins at this committed offset: lag tools are told of it again.

        The group may be new to it, or a worker died before it told.
        """
        with self._lock:
            self._positions[partition] = next_offset

    def take_positions(self) -> dict[TopicPartition, int]:
        """Next offsets committed or restored since the last call, for lag tools."""
        with self._lock:
            positions, self._positions = self._positions, {}
            return positions

    def _notice_losses(self, partitions: Sequence[Partition]) -> None:
        stored = self._checkpoints.revisions() if partitions else {}
        for item in partitions:
            revision = stored.get(item.partition, NO_REVISION)
            lost = item.compare_with_stored(revision)
            if lost is not None:
                self._metrics.checkpoint_lost()
                log.error(
                    "the store lost the checkpoint of %s: version %d was committed, now %s is "
                    "there; it is written again from memory",
                    item.partition,
                    lost,
                    revision.version or "none",
                )

    def _commit_one(self, item: Partition) -> None:
        try:
            with self._metrics.commit_timer():
                offset = item.commit(
                    self._checkpoints, self._clock.now_ms(), self._tokenizer.labels
                )
        except CheckpointConflict as error:
            self._metrics.conflict()
            log.warning("%s; our counts since the last commit are dropped", error)
            return
        if offset is not None:
            with self._lock:
                self._positions[item.partition] = offset
