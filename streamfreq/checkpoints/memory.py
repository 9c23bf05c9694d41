"""Checkpoints in this process, for tests, demos and one-off runs; kept as bytes like the others."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamfreq.checkpoints.base import conflict
from streamfreq.codec import (
    NO_REVISION,
    Checkpoint,
    CheckpointUpdate,
    Revision,
    decode_checkpoint,
    encode_update,
)
from streamfreq.records import TopicPartition


@dataclass(frozen=True, slots=True)
class _Entry:
    revision: Revision
    next_offset: int
    parts: tuple[bytes, ...]


_NOTHING = _Entry(NO_REVISION, 0, ())


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

    @classmethod
    def shared(cls, url: str, prefix: str, job: str) -> MemoryCheckpointStore:
        """A store on what this process keeps under that URL, prefix and job until it ends."""
        with _shared_lock:
            kept = _shared.setdefault((url, prefix, job), MemoryCheckpoints())
        return cls(job, kept)

    def load(self, partition: TopicPartition, known: Checkpoint | None = None) -> Checkpoint | None:
        """The partition's checkpoint; `known` itself when it is what is stored."""
        with self._kept.lock:
            entry = self._kept.entries.get(partition)
        if entry is None:
            return None
        if known is not None and known.revision == entry.revision:
            return known
        return decode_checkpoint(entry.parts, f"checkpoint of {partition} of job {self._job}")

    def commit(self, update: CheckpointUpdate) -> None:
        """Store it if what is stored is what it follows, else raise CheckpointConflict."""
        part = encode_update(update)
        with self._kept.lock:
            old = self._kept.entries.get(update.partition, _NOTHING)
            if old.revision == update.revision:
                return
            if old.revision != update.follows or old.next_offset > update.next_offset:
                raise conflict(update, old.revision, old.next_offset)
            parts = (part,) if update.changes.whole else (*old.parts, part)
            self._kept.entries[update.partition] = _Entry(
                update.revision, update.next_offset, parts
            )

    def revisions(self) -> Mapping[TopicPartition, Revision]:
        """The revision of every partition that has a checkpoint."""
        with self._kept.lock:
            return {partition: item.revision for partition, item in self._kept.entries.items()}

    def delete(self, partition: TopicPartition) -> bool:
        """Forget the partition's checkpoint; whether there was one."""
        with self._kept.lock:
            return self._kept.entries.pop(partition, None) is not None
