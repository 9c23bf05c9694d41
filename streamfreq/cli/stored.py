"""Snapshots by what a person calls them: a version, `latest`, or a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from streamfreq.codec import Snapshot
from streamfreq.errors import UsageError

if TYPE_CHECKING:
    from streamfreq.config import Config
    from streamfreq.snapshots.base import SnapshotStore

LATEST = "latest"


class Stored:
    """The job's snapshots; the store is opened when it is first needed (a file needs none)."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._store: SnapshotStore | None = None

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
