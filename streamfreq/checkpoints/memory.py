"""Checkpoints in this process, for tests, demos and one-off runs; kept as bytes like the others."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamfreq.codec import Checkpoint, decode_checkpoint, encode_checkpoint
from streamfreq.errors import CheckpointConflict
from streamfreq.records import TopicPartition


@dataclass(frozen=True, slots=True)
class _Entry:
    version: int
    body: bytes
    writer: object


@dataclass(slots=True)
class MemoryCheckpoints:
    """What the stores of one job share; lives as long as somebody holds it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    entries: dict[TopicPartition, _Entry] = field(default_factory=dict)


_shared: dict[tuple[str, str, str], MemoryCheckpoints] = {}
_shared_lock = threading.Lock()


class MemoryCheckpointStore:
    """A CheckpointStore in memory; stores made with the same `kept` see the same checkpoints."""

    def __init__(self, job: str, kept: MemoryCheckpoints | None = None) -> None:
        self._job = job
        self._kept = kept if kept is not None else MemoryCheckpoints()
        self._writer = object()

    @classmethod
    def shared(cls, url: str, prefix: str, job: str) -> MemoryCheckpointStore:
        """A store on what this process keeps under that URL, prefix and job until it ends."""
        with _shared_lock:
            kept = _shared.setdefault((url, prefix, job), MemoryCheckpoints())
        return cls(job, kept)

    def load(self, partition: TopicPartition, newer_than: int = 0) -> Checkpoint | None:
        """The partition's checkpoint; None when there is none with a version above `newer_than`."""
        with self._kept.lock:
            entry = self._kept.entries.get(partition)
        if entry is None or entry.version <= newer_than:
            return None
        return decode_checkpoint(entry.body, f"checkpoint of {partition} of job {self._job}")

    def commit(self, checkpoint: Checkpoint) -> None:
        """Write it if the stored version is one less, else raise CheckpointConflict.

        The same checkpoint again from the same store is no conflict.
        """
        body = encode_checkpoint(checkpoint)
        new = _Entry(checkpoint.version, body, self._writer)
        with self._kept.lock:
            old = self._kept.entries.get(checkpoint.partition)
            if old == new:
                return
            stored = old.version if old is not None else 0
            if stored != checkpoint.version - 1:
                raise CheckpointConflict(
                    f"{checkpoint.partition}: version {stored} is stored, so version "
                    f"{checkpoint.version} can't follow; another worker owns the partition now, "
                    "or the store has lost writes"
                )
            self._kept.entries[checkpoint.partition] = new

    def versions(self) -> Mapping[TopicPartition, int]:
        """The version of every partition that has a checkpoint."""
        with self._kept.lock:
            return {partition: item.version for partition, item in self._kept.entries.items()}

    def revisions(self) -> Mapping[TopicPartition, str]:
        """What tells each stored checkpoint from every other one of its partition."""
        with self._kept.lock:
            return {
                partition: f"{item.version}:{hashlib.sha256(item.body).hexdigest()}"
                for partition, item in self._kept.entries.items()
            }

    def delete_all(self) -> int:
        """Forget every checkpoint of the job; returns how many there were."""
        with self._kept.lock:
            count = len(self._kept.entries)
            self._kept.entries.clear()
            return count
