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
    refused; each of them is logged once.
    """

    def __init__(self, store: SnapshotStore, fingerprint: str) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._seen = 0
        self.snapshot: Snapshot | None = None
        self.refused = 0

    def refresh(self) -> bool:
        """Look for a newer version; whether `snapshot` is another one now.

        The body is fetched only when the version changed. Raises ServiceUnavailable while the
        store is away; the last good snapshot stays then too.
        """
        version = self._store.latest_version()
        if version == self._seen or version == 0:
            return False
        try:
            snapshot = self._store.load(version)
            if snapshot is not None and snapshot.tokenizer_fingerprint != self._fingerprint:
                raise SnapshotRefused(
                    f"snapshot {version}: made with tokenizer {snapshot.tokenizer_name} "
                    f"{snapshot.tokenizer_fingerprint[:12]}, this reader has "
                    f"{self._fingerprint[:12]}"
                )
        except SnapshotRefused as error:
            self._seen = version
            self.refused += 1
            log.warning("%s; the last good snapshot stays", error)
            return False
        if snapshot is None:  # trimmed in between: a newer one is there
            return False
        self._seen = version
        self.snapshot = snapshot
        return True
