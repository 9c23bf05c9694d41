"""What a job keeps in the store; snapshots by what a person calls them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from streamfreq.cli.output import note
from streamfreq.codec import Snapshot
from streamfreq.errors import UsageError

if TYPE_CHECKING:
    from streamfreq.checkpoints import CheckpointStore
    from streamfreq.config import Config
    from streamfreq.snapshots.base import SnapshotStore

LATEST = "latest"
_LEASE_RETRY_SECONDS = 0.25


class Stored:
    """The job's snapshots and checkpoints; each store is opened when it is first needed."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._store: SnapshotStore | None = None
        self._checkpoints: CheckpointStore | None = None

    @property
    def checkpoints(self) -> CheckpointStore:
        """The checkpoints; raises ConfigError or ServiceUnavailable."""
        if self._checkpoints is None:
            from streamfreq.checkpoints import open_checkpoints

            self._checkpoints = open_checkpoints(self.config.redis, self.config.job)
        return self._checkpoints

    @contextmanager
    def publishing(self, way_out: str = "") -> Iterator[int]:
        """Hold the publisher's lease; gives its fencing token.

        Waits for as long as a lease that a dead publisher left behind may last. Raises UsageError,
        whose message ends with `way_out`, while another one renews it.
        """
        from streamfreq.snapshots import open_lease

        config = self.config
        holder = f"command:{socket.gethostname()}:{os.getpid()}"
        lease = open_lease(config.redis, config.snapshots, config.job, holder)
        deadline = time.monotonic() + config.snapshots.lease_seconds + _LEASE_RETRY_SECONDS
        fence, waiting = lease.acquire(), False
        while fence is None and time.monotonic() < deadline:
            if not waiting:
                note("another publisher holds the lease; waiting to see whether it is alive")
                waiting = True
            time.sleep(_LEASE_RETRY_SECONDS)
            fence = lease.acquire()
        if fence is None:
            raise UsageError(f"a daemon of {self.where} is publishing; stop it first{way_out}")
        try:
            yield fence
        finally:
            lease.release()

    @property
    def store(self) -> SnapshotStore:
        """The store; raises ConfigError or ServiceUnavailable."""
        if self._store is None:
            from streamfreq.snapshots import open_snapshots

            config = self.config
            self._store = open_snapshots(config.redis, config.snapshots, config.job)
        return self._store

    @property
    def where(self) -> str:
        """The job and its store, for messages."""
        from streamfreq.redis_client import describe

        return f"job {self.config.job} at {describe(self.config.redis)}"

    def read(self, reference: str) -> Snapshot:
        """The snapshot that `reference` names: latest, a version, or else a file.

        Raises UsageError when there is none, SnapshotRefused when its bytes can't be used.
        """
        if reference != LATEST and not reference.isdecimal():
            if not Path(reference).exists():
                raise UsageError(f"{reference}: neither a version, nor latest, nor a file")
            from streamfreq.snapshots import read_snapshot_file

            return read_snapshot_file(reference)
        version = None if reference == LATEST else int(reference)
        snapshot = self.store.load(version)
        if snapshot is None:
            raise UsageError(self.missing(version))
        return snapshot

    def missing(self, version: int | None) -> str:
        """A line that says that a version is not kept, and which are."""
        kept = [info.version for info in self.store.infos()]
        if not kept:
            return f"{self.where} has no snapshot; does the daemon run, and is --job right?"
        wanted = "the latest" if version is None else f"version {version}"
        known = ", ".join(map(str, kept))
        return f"{self.where}: {wanted} is not kept; there are {known}"
