"""Where reading stands in each partition: what the source asks, and is told."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from streamfreq.errors import DataRefused
from streamfreq.records import RecordBatch, TopicPartition
from streamfreq.sources import Source
from streamfreq.sources.base import StartAt
from trainer.batches.packer import Packer
from trainer.blocks import StreamState

log = logging.getLogger("trainer.batches")

REPORT_SECONDS = 5.0


class Positions:
    """An AssignmentListener: partitions begin where the resume state says, else at `start`.

    The position that the group has committed is never read.
    """

    def __init__(self, packer: Packer, start: StartAt) -> None:
        self._packer = packer
        self._start = start
        self._next: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, str] = {}
        self._untold: set[TopicPartition] = set()
        self._report_due = 0.0
        self._reported: Mapping[TopicPartition, int] = {}
        self.leaving = False
        self.assigned: set[TopicPartition] = set()
        self.trained: Mapping[TopicPartition, int] = {}
        self.gap_records = 0

    def begin(self, state: StreamState) -> None:
        """Reading goes on behind `state`."""
        self._next = dict(state.offsets)
        self._topic_ids = dict(state.topic_ids)

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, StartAt]:
        """Begin each where we were, also one that was somebody else's meanwhile."""
        self.assigned.update(partitions)
        self._untold.update(partitions)
        return {
            partition: StartAt(offset=self._next[partition])
            if partition in self._next
            else self._start
            for partition in partitions
        }

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Somebody else joined the group, or we leave it; what is ours again goes on from here."""
        if partitions and not self.leaving:
            self._warn("taken away", partitions)
        self._drop(partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """The group has given these to somebody else."""
        if partitions:
            self._warn("given to another member", partitions)
        self._drop(partitions)

    def _warn(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        log.warning(
            "%d partitions were %s by the consumer group; a second member takes a part of the "
            "stream away: each trainer needs a group of its own (kafka.group_id)",
            len(partitions),
            what,
        )

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        self.assigned.difference_update(partitions)
        self._untold.difference_update(partitions)

    def on_gap(self, partition: TopicPartition, first: int, last: int) -> None:
        """Records that the broker no longer has are never trained on."""
        self.gap_records += last - first
        log.warning("%s: offsets %d to %d are gone, not trained on", partition, first, last - 1)

    def polled(self, batch: RecordBatch) -> RecordBatch:
        """The part of the batch that was not read before; notes where it ends.

        Raises DataRefused when its topic was made anew.
        """
        topic = batch.partition.topic
        known = self._topic_ids.setdefault(topic, batch.topic_id)
        if batch.topic_id and known and batch.topic_id != known:
            raise DataRefused(
                f"topic {topic} was deleted and made again: its offsets are no longer those of "
                "this run; begin another one (name another output folder)"
            )
        self._untold.discard(batch.partition)
        wanted = self._next.get(batch.partition, 0)
        if batch.next_offset < wanted:  # reading is beyond it already, and does not go back
            return RecordBatch.empty(batch.partition, wanted, batch.topic_id)
        self._next[batch.partition] = batch.next_offset
        return batch.since(wanted)

    def lag(self, ends: Mapping[TopicPartition, int] | None) -> int | None:
        """Records that are there and not packed yet; None while that is not known."""
        if ends is None or self._untold or not self.assigned:
            return None
        packed = self._packer.offsets
        return sum(max(0, end - packed.get(key, 0)) for key, end in ends.items())

    def report(self, source: Source, now: float | None) -> None:
        """Tell the group how far training is, every few seconds; now None: at once."""
        due = now is None or now >= self._report_due
        if not due or self.trained is self._reported or not self.trained:
            return
        self._reported = self.trained
        if now is not None:
            self._report_due = now + REPORT_SECONDS
        source.report_position(self._reported)
