"""The port to where checkpoints are kept: one value per partition, swapped by version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from streamfreq.codec import Checkpoint
from streamfreq.records import TopicPartition


class CheckpointStore(Protocol):
    """One checkpoint per partition of a job. All calls raise ServiceUnavailable when it is away."""

    def load(self, partition: TopicPartition, newer_than: int = 0) -> Checkpoint | None:
        """The partition's checkpoint; None when there is none with a version above `newer_than`.

        Raises CheckpointRefused when the bytes are damaged or of a newer format.
        """
        ...

    def commit(self, checkpoint: Checkpoint) -> None:
        """Write `checkpoint` if the stored version is exactly `checkpoint.version - 1`, atomically.

        No checkpoint counts as version 0. Raises CheckpointConflict otherwise, and writes nothing.
        """
        ...

    def versions(self) -> Mapping[TopicPartition, int]:
        """The version of every partition that has a checkpoint, as of some moment each."""
        ...

    def revisions(self) -> Mapping[TopicPartition, str]:
        """What tells a stored checkpoint from every other one of its partition.

        Unlike the version it also differs when the store went back to an older state and was
        written anew.
        """
        ...

    def delete_all(self) -> int:
        """Forget every checkpoint of the job; returns how many there were."""
        ...
