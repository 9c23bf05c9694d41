"""The last good snapshot, for readers that must never use a bad one."""

from __future__ import annotations

import logging

from streamfreq.codec import Snapshot
from streamfreq.errors import SnapshotRefused
from streamfreq.snapshots.base import SnapshotStore

log = logging.getLogger("streamfreq.snapshots")


class SnapshotReader:
    """Follows a job's latest snapshot; what is damaged or of another tokenizer is refused.

    `snapshot` is the last good one (None before the first), `refused` how many versions were
    refused; each of them is logged once. Within an epoch it never goes back, even when the store
    lost its last writes together with the publisher that remembered them: an older snapshot is
    left aside until one comes that counts at least as much.
    """

    def __init__(self, store: SnapshotStore, fingerprint: str) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._seen = (0, 0)
        self._behind = False
        self.snapshot: Snapshot | None = None
        self.refused = 0

    def refresh(self) -> bool:
        """Look for a newer version; whether `snapshot` is another one now.

        The body is fetched only when version or epoch changed. Raises ServiceUnavailable while
        the store is away; the last good snapshot stays then too.
        """
        seen = (self._store.latest_version(), self._store.epoch())
        if seen == self._seen or seen[0] == 0:
            return False
        try:
            snapshot = self._store.load(seen[0])
            if snapshot is not None:
                self._require_same_tokenizer(snapshot)
        except SnapshotRefused as error:
            self._seen = seen
            self.refused += 1
            log.warning("%s; the last good snapshot stays", error)
            return False
        if snapshot is None:  # trimmed in between: a newer one is there
            return False
        self._seen = seen
        if self._takes_back(snapshot):
            return False
        self.snapshot = snapshot
        return True

    def _require_same_tokenizer(self, snapshot: Snapshot) -> None:
        if snapshot.tokenizer_fingerprint != self._fingerprint:
            raise SnapshotRefused(
                f"snapshot {snapshot.version}: made with tokenizer {snapshot.tokenizer_name} "
                f"{snapshot.tokenizer_fingerprint[:12]}, this reader has {self._fingerprint[:12]}"
            )

    def _takes_back(self, new: Snapshot) -> bool:
        """Whether `new` counts less than what this reader has got."""
        old = self.snapshot
        if old is None:
            return False
        if new.epoch != old.epoch and new.created_at_ms > old.created_at_ms:
            log.warning(
                "snapshot %d begins a new epoch: the store had lost all, or the job began anew; "
                "it takes the place of snapshot %d",
                new.version,
                old.version,
            )
            return False
        behind = (
            new.epoch != old.epoch
            or new.version <= old.version
            or new.as_of_ms < old.as_of_ms
            or any(new.offsets.get(key, 0) < offset for key, offset in old.offsets.items())
        )
        if behind and not self._behind:
            log.warning(
                "snapshot %d counts less than snapshot %d, which this reader has: the store lost "
                "writes; the last good snapshot stays until a newer one comes",
                new.version,
                old.version,
            )
        self._behind = behind
        return behind
