"""The values that flow through the daemon: records in columns, and the tokens made of them.

Shape legend: R records, N tokens, H horizons, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
Float32Array = NDArray[np.float32]

NO_TIMESTAMP = -1
"""What a record without a timestamp carries in place of one (Kafka's own value)."""


class TopicPartition(NamedTuple):
    """One partition of one topic; for a file source the topic is the file."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Consecutive records of one partition, in offset order (offsets may have holes).

    `next_offset` is where reading goes on: it is beyond the last record, and further still where
    the log holds control records or compacted holes. A batch may be empty and only move on.
    `topic_id` differs between a topic and another one made later under its name; empty where the
    source can't tell them apart. `topic_partitions` is how many the topic has; 0 where it is not
    known. Only the batch that tells where reading begins has to know it.
    """

    partition: TopicPartition
    offsets_R: Int64Array
    timestamps_ms_R: Int64Array
    values: list[bytes | None]
    next_offset: int
    topic_id: str = ""
    topic_partitions: int = 0

    def __len__(self) -> int:
        return len(self.values)

    def since(self, offset: int) -> RecordBatch:
        """The part of the batch at or above `offset`; itself when nothing is below."""
        first = int(np.searchsorted(self.offsets_R, offset))
        if first == 0:
            return self
        return RecordBatch(
            self.partition,
            self.offsets_R[first:],
            self.timestamps_ms_R[first:],
            self.values[first:],
            max(self.next_offset, offset),
            self.topic_id,
            self.topic_partitions,
        )

    def before(self, row: int) -> RecordBatch:
        """The first `row` records; reading goes on at the record that is left out."""
        return RecordBatch(
            self.partition,
            self.offsets_R[:row],
            self.timestamps_ms_R[:row],
            self.values[:row],
            int(self.offsets_R[row]),
            self.topic_id,
            self.topic_partitions,
        )

    @staticmethod
    def empty(
        partition: TopicPartition, next_offset: int, topic_id: str = "", topic_partitions: int = 0
    ) -> RecordBatch:
        """No records: it only says where reading goes on, and in which topic."""
        nothing = np.empty(0, np.int64)
        return RecordBatch(partition, nothing, nothing, [], next_offset, topic_id, topic_partitions)


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """The token ids of R records, flat: record r holds the next `lengths_R[r]` of `ids_N`."""

    ids_N: Int32Array
    lengths_R: Int64Array

    def __len__(self) -> int:
        return len(self.lengths_R)

    def __post_init__(self) -> None:
        assert int(self.lengths_R.sum()) == len(self.ids_N), "lengths do not add up to the ids"

    def slice(self, first: int, last: int) -> TokenBatch:
        """Records `first` to `last` (exclusive), without copying the ids."""
        start = int(self.lengths_R[:first].sum())
        stop = start + int(self.lengths_R[first:last].sum())
        return TokenBatch(self.ids_N[start:stop], self.lengths_R[first:last])

    def select(self, keep_R: BoolArray) -> TokenBatch:
        """Only the records where `keep_R` is true; itself when all are."""
        if keep_R.all():
            return self
        return TokenBatch(self.ids_N[np.repeat(keep_R, self.lengths_R)], self.lengths_R[keep_R])

    @staticmethod
    def empty(records: int = 0) -> TokenBatch:
        """A batch of `records` records that hold no token."""
        return TokenBatch(np.empty(0, np.int32), np.zeros(records, np.int64))

    @staticmethod
    def concatenate(batches: list[TokenBatch]) -> TokenBatch:
        """The records of all `batches`, in order."""
        if not batches:
            return TokenBatch.empty()
        return TokenBatch(
            np.concatenate([batch.ids_N for batch in batches]),
            np.concatenate([batch.lengths_R for batch in batches]),
        )
