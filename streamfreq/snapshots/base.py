"""The ports to where snapshots are kept and to the lease that elects the publisher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from streamfreq.codec import Floor, Snapshot


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """What a listing shows of one kept snapshot."""

    version: int
    created_at_ms: int
    as_of_ms: int
    size_bytes: int
    pinned: bool
    latest: bool


class Hints(Protocol):
    """Word that something was published; a reader that gets none still finds out by asking.

    One thread waits, any thread closes.
    """

    def wait(self, timeout_seconds: float) -> bool:
        """Whether a hint has come since the last call, or comes within the timeout.

        False at once after `close`. Never raises: while the store is away it waits, and listens
        again by itself when it is back.
        """
        ...

    def close(self) -> None:
        """Stop listening; a `wait` in progress returns soon."""
        ...


class SnapshotStore(Protocol):
    """Versioned snapshots of one job. All calls raise ServiceUnavailable when it is away."""

    def publish(self, snapshot: Snapshot, fence: int) -> None:
        """Keep `snapshot` and make it the latest, atomically for readers; then trim old versions.

        It becomes the floor for those that follow.

        Raises FencedOut when a higher fence was seen, or the version is not above the latest one,
        or its epoch and version are not above the floor's; nothing changes then.
        """
        ...

    def latest_version(self) -> int:
        """The version of the latest snapshot; 0 when none was ever published."""
        ...

    def epoch(self) -> int:
        """The floor's epoch; 0: there is none, the next snapshot begins a new epoch."""
        ...

    def floor(self) -> Floor:
        """What readers have got, as far as is known here; an empty one when nothing is."""
        ...

    def raise_floor(self, floor: Floor) -> None:
        """Readers have got this, though the store has lost it: keep it, if it is later.

        Without any floor nothing is kept: a new epoch is to begin.
        """
        ...

    def end_epoch(self) -> None:
        """Let the next snapshot begin a new epoch: it may count less than the last one."""
        ...

    def load(self, version: int | None = None) -> Snapshot | None:
        """A kept snapshot (default: the latest); None when it is not kept.

        Raises SnapshotRefused when its bytes are damaged or of a newer format.
        """
        ...

    def infos(self) -> list[SnapshotInfo]:
        """Every kept snapshot, oldest first."""
        ...

    def set_pinned(self, version: int, pinned: bool) -> bool:
        """Pin (never trimmed) or unpin a version; False when it is not kept."""
        ...

    def mark_stale(self, since_ms: int | None) -> None:
        """Say that the latest snapshot has had no live stream behind it since then; None: it has.

        Publishing clears the mark.
        """
        ...

    def stale_since_ms(self) -> int | None:
        """The mark that `mark_stale` left."""
        ...

    def hints(self) -> Hints:
        """Listen for publications from now on."""
        ...


class PublisherLease(Protocol):
    """At most one holder at a time; each new holder has a higher fencing token."""

    def acquire(self) -> int | None:
        """Take or renew the lease; the fencing token, or None while somebody else holds it."""
        ...

    def release(self) -> None:
        """Give the lease back, if it is ours, so that another publisher need not wait."""
        ...
