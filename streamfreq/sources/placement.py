"""Which partitions are ours, and how far each is on its way from assigned to being read."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamfreq.records import TopicPartition
from streamfreq.sources.base import AssignmentListener, StartAt


class Placement:
    """Book-keeping for sources whose partitions come and go.

    A partition is `fresh` until the listener has been asked about it, then `waiting` when the
    answer leaves it out, else in `starts` until its start is an offset, then in `next_offsets`.
    It is `untold` until an empty batch has told where reading begins, and of which topic.
    """

    def __init__(self) -> None:
        self.fresh: set[TopicPartition] = set()
        self.waiting: set[TopicPartition] = set()
        self.starts: dict[TopicPartition, StartAt] = {}
        self.next_offsets: dict[TopicPartition, int] = {}
        self.untold: set[TopicPartition] = set()

    @property
    def settled(self) -> bool:
        """Whether all that the listener wants to be read is read, and told to begin."""
        return not (self.fresh or self.starts or self.untold)

    @property
    def assigned(self) -> set[TopicPartition]:
        """All that are ours."""
        return {*self.fresh, *self.waiting, *self.starts, *self.next_offsets}

    def ask(self, listener: AssignmentListener) -> None:
        """Ask the listener where the fresh ones begin; what it raises leaves them fresh."""
        if not self.fresh:
            return
        starts = listener.on_assigned(sorted(self.fresh))
        # The listener may have called `seek`, and so `want`, for some of them already.
        for partition in sorted(self.fresh):
            if partition in starts:
                self.starts[partition] = starts[partition]
            else:
                self.waiting.add(partition)
        self.fresh.clear()

    def want(self, partition: TopicPartition, start: StartAt) -> bool:
        """Remember where to go on; false when the partition is not ours."""
        if partition not in self.assigned:
            return False
        self.fresh.discard(partition)
        self.waiting.discard(partition)
        self.untold.discard(partition)
        self.starts[partition] = start
        return True

    def place(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These starts have become offsets."""
        for partition, offset in offsets.items():
            self.starts.pop(partition, None)
            self.untold.add(partition)
            self.next_offsets[partition] = offset

    def tell(self) -> list[tuple[TopicPartition, int]]:
        """What is untold: where reading begins."""
        begun = [(partition, self.next_offsets[partition]) for partition in sorted(self.untold)]
        self.untold.clear()
        return begun

    def moved(self, partition: TopicPartition, next_offset: int) -> bool:
        """Reading goes on at `next_offset`; whether that is news."""
        news = self.next_offsets[partition] != next_offset
        self.next_offsets[partition] = next_offset
        return news

    def told(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Those of `partitions` that are ours as far as the listener knows."""
        known = {*self.waiting, *self.starts, *self.next_offsets}
        return [partition for partition in partitions if partition in known]

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """These are not ours any more."""
        self.fresh.difference_update(partitions)
        self.waiting.difference_update(partitions)
        self.untold.difference_update(partitions)
        for partition in partitions:
            self.starts.pop(partition, None)
            self.next_offsets.pop(partition, None)
