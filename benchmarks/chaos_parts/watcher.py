"""Looks at what is published, as a reader would, and says what must not be.

Two looks: at the store itself, and through SnapshotReader. Versions, `as_of` and every offset only
grow; a new epoch is allowed only after the store has lost everything on purpose. When the store
loses writes and the publisher dies with them, nobody is left who knows, and only the reader is held
to that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from streamfreq.codec import Snapshot
from streamfreq.config import RedisConfig, SnapshotsConfig
from streamfreq.errors import StreamfreqError
from streamfreq.records import TopicPartition
from streamfreq.snapshots import SnapshotReader, open_snapshots

LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Seen:
    """A snapshot, and when it was first seen (monotonic)."""

    at: float
    snapshot: Snapshot

    @property
    def name(self) -> tuple[int, int, int]:
        """Tells it from every other one: a store that lost writes may repeat a version."""
        return self.snapshot.epoch, self.snapshot.version, self.snapshot.created_at_ms


def taken_back(before: Snapshot, after: Snapshot, *, epoch_may_end: bool) -> str:
    """What `after` takes back of `before`; empty when nothing."""
    if before.epoch != after.epoch:
        if epoch_may_end:
            return ""
        return f"snapshot {after.version} begins an epoch though the store had lost nothing"
    lower = [
        str(partition)
        for partition, offset in before.offsets.items()
        if after.offsets.get(partition, 0) < offset
    ]
    found = [
        *(["its version does not grow"] if after.version <= before.version else []),
        *(["as_of goes back"] if after.as_of_ms < before.as_of_ms else []),
        *([f"the offsets of {' '.join(lower)} go back"] if lower else []),
    ]
    return f"snapshot {after.version} after {before.version}: {', '.join(found)}" if found else ""


class Watcher(threading.Thread):
    """Keeps every snapshot that it sees, and the violations."""

    def __init__(self, redis: RedisConfig, job: str, fingerprint: str) -> None:
        super().__init__(name="watcher", daemon=True)
        self._store = open_snapshots(redis, SnapshotsConfig(), job)
        self._reader = SnapshotReader(self._store, fingerprint)
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._last: tuple[int, int] = (0, 0)
        self._forgotten = 0
        self._kept: list[Seen] = []
        self._newest: Snapshot | None = None
        self._names: set[tuple[int, int, int]] = set()
        self.epoch_may_end = False
        self.nobody_knows = False
        self.violations: list[str] = []

    def run(self) -> None:
        """Look until told to end; a store that is away is looked at again."""
        while not self._ending.wait(LOOK_SECONDS):
            try:
                self._look()
            except StreamfreqError:
                continue

    def end(self) -> None:
        """Look no more."""
        self._ending.set()
        self.join(10)

    def kept(self) -> list[Seen]:
        """Every snapshot seen, in order."""
        with self._lock:
            return list(self._kept)

    def reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether the newest snapshot counts everything below these offsets."""
        with self._lock:
            if len(self._kept) <= self._forgotten:
                return False
            offsets = self._kept[-1].snapshot.offsets
        return all(offsets.get(partition, 0) >= end for partition, end in ends.items())

    def forget_the_last(self) -> None:
        """A snapshot seen before does not say that something is reached now."""
        with self._lock:
            self._last = (0, 0)
            self._forgotten = len(self._kept)

    def _look(self) -> None:
        head = (self._store.latest_version(), self._store.epoch())
        before = self._reader.snapshot
        if self._reader.refresh() and before is not None:
            assert self._reader.snapshot is not None
            self._judge("a reader: ", before, self._reader.snapshot)
        if head == self._last or not head[0]:
            return
        snapshot = self._store.load(head[0])
        if snapshot is None:
            return
        seen = Seen(time.monotonic(), snapshot)
        with self._lock:
            self._kept.append(seen)
            self._last = head
        # A store that went back shows an old snapshot again, which nobody has published.
        if seen.name in self._names:
            return
        self._names.add(seen.name)
        before, self._newest = self._newest, snapshot
        if before is not None and not self.nobody_knows:
            self._judge("the store: ", before, snapshot)

    def _judge(self, where: str, before: Snapshot, after: Snapshot) -> None:
        wrong = taken_back(before, after, epoch_may_end=self.epoch_may_end)
        if wrong:
            self.violations.append(where + wrong)
