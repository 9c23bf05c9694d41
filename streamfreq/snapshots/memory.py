"""Snapshots and the publisher's lease in this process: for tests, demos and one-off runs."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

from streamfreq.clock import Clock, SystemClock
from streamfreq.codec import Floor, Snapshot, decode_snapshot, encode_snapshot
from streamfreq.errors import FencedOut
from streamfreq.snapshots.base import Hints, SnapshotInfo


@dataclass(frozen=True, slots=True)
class _Kept:
    body: bytes
    writer: object
    created_at_ms: int
    as_of_ms: int
    pinned: bool = False


@dataclass(slots=True)
class MemorySnapshots:
    """What the stores and leases of one job share; lives as long as somebody holds it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    listeners: set[threading.Event] = field(default_factory=set)
    kept: dict[int, _Kept] = field(default_factory=dict)
    latest: int = 0
    floor: Floor = field(default_factory=Floor)
    fence: int = 0
    stale_since_ms: int | None = None
    holder: str | None = None
    token: int = 0
    held_until: float = 0.0

    @staticmethod
    def shared(url: str, prefix: str, job: str) -> MemorySnapshots:
        """What this process keeps under that URL, prefix and job until it ends."""
        with _shared_lock:
            return _shared.setdefault((url, prefix, job), MemorySnapshots())


_shared: dict[tuple[str, str, str], MemorySnapshots] = {}
_shared_lock = threading.Lock()


class MemorySnapshotStore:
    """A SnapshotStore in memory; stores made with the same `snapshots` see the same versions."""

    def __init__(
        self, job: str, retain: int = 10, snapshots: MemorySnapshots | None = None
    ) -> None:
        self._job = job
        self._retain = retain
        self._all = snapshots if snapshots is not None else MemorySnapshots()
        self._writer = object()

    def publish(self, snapshot: Snapshot, fence: int) -> None:
        """Keep `snapshot`, make it the latest, trim; the same one again changes nothing."""
        new = _Kept(
            encode_snapshot(snapshot), self._writer, snapshot.created_at_ms, snapshot.as_of_ms
        )
        with self._all.lock:
            known = self._all.kept.get(snapshot.version)
            if known is not None and replace(known, pinned=False) == new:
                return
            if fence < self._all.fence:
                raise FencedOut(
                    f"snapshot {snapshot.version} of job {self._job}: fencing token {fence} is "
                    f"older than {self._all.fence}; another publisher has taken over, "
                    "or our own lease ran out meanwhile"
                )
            if snapshot.version <= self._all.latest:
                raise FencedOut(
                    f"snapshot {snapshot.version} of job {self._job}: version "
                    f"{self._all.latest} is published already; another publisher is at work"
                )
            floor = self._all.floor
            if Floor.of(snapshot).order <= floor.order:
                raise FencedOut(
                    f"snapshot {snapshot.version} of job {self._job}: readers have got version "
                    f"{floor.version} already; another publisher is at work"
                )
            self._all.kept[snapshot.version] = new
            self._all.latest = snapshot.version
            self._all.floor = Floor.of(snapshot)
            self._all.fence = fence
            self._all.stale_since_ms = None
            for version in sorted(self._all.kept)[: -self._retain]:
                if not self._all.kept[version].pinned:
                    del self._all.kept[version]
            for heard in self._all.listeners:
                heard.set()

    def latest_version(self) -> int:
        """The version of the latest snapshot; 0 when none was ever published."""
        return self._all.latest

    def epoch(self) -> int:
        """The floor's epoch; 0: there is none, the next snapshot begins a new epoch."""
        return self._all.floor.epoch

    def floor(self) -> Floor:
        """What readers have got, as far as is known here."""
        return self._all.floor

    def raise_floor(self, floor: Floor) -> None:
        """Keep this floor, if there is one and this is a later one."""
        with self._all.lock:
            old = self._all.floor
            if old.epoch and floor.order > old.order:
                self._all.floor = floor

    def end_epoch(self) -> None:
        """Let the next snapshot begin a new epoch: it may count less than the last one."""
        with self._all.lock:
            self._all.floor = Floor()

    def load(self, version: int | None = None) -> Snapshot | None:
        """A kept snapshot (default: the latest); None when it is not kept."""
        with self._all.lock:
            wanted = self._all.latest if version is None else version
            kept = self._all.kept.get(wanted)
        if kept is None:
            return None
        return decode_snapshot(kept.body, f"snapshot {wanted} of job {self._job}")

    def infos(self) -> list[SnapshotInfo]:
        """Every kept snapshot, oldest first."""
        with self._all.lock:
            return [
                SnapshotInfo(
                    version=version,
                    created_at_ms=kept.created_at_ms,
                    as_of_ms=kept.as_of_ms,
                    size_bytes=len(kept.body),
                    pinned=kept.pinned,
                    latest=version == self._all.latest,
                )
                for version, kept in sorted(self._all.kept.items())
            ]

    def set_pinned(self, version: int, pinned: bool) -> bool:
        """Pin (never trimmed) or unpin a version; False when it is not kept."""
        with self._all.lock:
            kept = self._all.kept.get(version)
            if kept is None:
                return False
            self._all.kept[version] = replace(kept, pinned=pinned)
            return True

    def mark_stale(self, since_ms: int | None) -> None:
        """Say since when the latest snapshot has had no live stream behind it; None: it has."""
        with self._all.lock:
            self._all.stale_since_ms = since_ms

    def stale_since_ms(self) -> int | None:
        """The mark that `mark_stale` left."""
        return self._all.stale_since_ms

    def hints(self) -> Hints:
        """Listen for publications from now on."""
        return MemoryHints(self._all)


class MemoryHints:
    """Hints between the threads of this process."""

    def __init__(self, snapshots: MemorySnapshots) -> None:
        self._all = snapshots
        self._heard = threading.Event()
        self._closed = False
        with self._all.lock:
            self._all.listeners.add(self._heard)

    def wait(self, timeout_seconds: float) -> bool:
        """Whether something was published since the last call, or is within the timeout."""
        heard = self._heard.wait(0 if self._closed else timeout_seconds) and not self._closed
        self._heard.clear()
        return heard

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        with self._all.lock:
            self._all.listeners.discard(self._heard)
        self._heard.set()


class MemoryPublisherLease:
    """A PublisherLease between the threads of this process; time is the clock's monotonic one."""

    def __init__(
        self,
        snapshots: MemorySnapshots,
        holder: str,
        lease_seconds: float,
        clock: Clock | None = None,
    ) -> None:
        self._all = snapshots
        self._holder = holder
        self._lease_seconds = lease_seconds
        self._clock = clock if clock is not None else SystemClock()

    def acquire(self) -> int | None:
        """Take or renew the lease; the fencing token, or None while somebody else holds it."""
        with self._all.lock:
            now = self._clock.monotonic()
            held = self._all.holder is not None and now < self._all.held_until
            if held and self._all.holder != self._holder:
                return None
            # A token below the highest one seen would never let its holder publish.
            if not held or self._all.token < self._all.fence:
                self._all.fence += 1
                self._all.token = self._all.fence
            self._all.holder = self._holder
            self._all.held_until = now + self._lease_seconds
            return self._all.token

    def release(self) -> None:
        """Give the lease back, if it is ours."""
        with self._all.lock:
            if self._all.holder == self._holder:
                self._all.holder = None
