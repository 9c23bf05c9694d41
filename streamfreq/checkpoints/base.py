"""The port to where checkpoints are kept: one value per partition, swapped by revision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from streamfreq.codec import Checkpoint, CheckpointUpdate, Revision
from streamfreq.errors import CheckpointConflict
from streamfreq.records import TopicPartition


class CheckpointStore(Protocol):
    """One checkpoint per partition of a job. All calls raise ServiceUnavailable when it is away."""

    def load(self, partition: TopicPartition, known: Checkpoint | None = None) -> Checkpoint | None:
        """The partition's checkpoint as of one moment; None when there is none.

        What `known` holds is not read again, and its arrays are taken over; `known` itself comes
        back when it is what is stored. Raises CheckpointRefused when the bytes are damaged or of
        a newer format.
        """
        ...

    def commit(self, update: CheckpointUpdate) -> None:
        """Store `update` if what is stored is exactly what it follows, as one step for readers.

        Raises CheckpointConflict otherwise, or when more records are counted there than in the
        update, and writes nothing. The same update again is no conflict.
        """
        ...

    def revisions(self) -> Mapping[TopicPartition, Revision]:
        """The revision of every partition that has a checkpoint, as of some moment each."""
        ...

    def delete(self, partition: TopicPartition) -> bool:
        """Forget the partition's checkpoint; whether there was one."""
        ...


def conflict(update: CheckpointUpdate, stored: Revision, next_offset: int) -> CheckpointConflict:
    """What a store raises that has another revision than the one that `update` follows."""
    return CheckpointConflict(
        f"{update.partition}: version {stored.version} (next offset {next_offset}) is stored, so "
        f"version {update.revision.version} (next offset {update.next_offset}) of this worker "
        "can't follow; another worker owns the partition now, or the store has lost writes"
    )
