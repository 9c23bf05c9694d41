"""Documents into blocks, in stream order, and behind each block where reading goes on.

Every token of a document but its first is predicted exactly once, however it is cut: a piece that
goes on in another block begins there with the last token of the piece before, unlearned.
Shape legend: T tokens of a block, L tokens of a document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from streamfreq.records import Int32Array, TopicPartition
from trainer.blocks import IGNORED, Block, StreamState

Packed = tuple[Block, StreamState]
_NOTHING = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class Specials:
    """Token ids that the text itself does not hold; None: no such token is added."""

    start_id: int | None = None
    end_id: int | None = None
    pad_id: int = 0


class Packer:
    """Fills blocks of `block_size` tokens; without packing each piece has a block of its own.

    >>> packer = Packer(4, Specials(end_id=9))
    >>> news = TopicPartition("news", 0)
    >>> [(block, state)] = packer.add(np.array([1, 2, 3, 4], np.int32), news, 1)
    >>> block.labels_T.tolist(), state.carry_ids.tolist()
    ([-100, 2, 3, 4], [4, 9])
    """

    def __init__(self, block_size: int, specials: Specials, *, packing: bool = True) -> None:
        self._size = block_size
        self._specials = specials
        self._packing = packing
        self._offsets: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, str] = {}
        self._records = 0
        self._tokens = 0
        self._rest = _NOTHING
        self._filled = 0
        self._ids_T: Int32Array = _NOTHING
        self._labels_T: Int32Array = _NOTHING
        self._positions_T: Int32Array = _NOTHING
        self._begin_block()

    @property
    def empty(self) -> bool:
        """Whether every token taken has gone into a block that is out."""
        return self._filled == 0

    @property
    def records(self) -> int:
        """Documents taken so far, from the very beginning."""
        return self._records

    @property
    def tokens(self) -> int:
        """Their tokens, specials not counted."""
        return self._tokens

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        """The next offset of each partition behind what was taken."""
        return self._offsets

    def resume(self, state: StreamState) -> Iterator[Packed]:
        """Go on behind a block: yields the blocks that the cut document still fills."""
        self._offsets = dict(state.offsets)
        self._topic_ids = dict(state.topic_ids)
        self._records, self._tokens = state.records, state.tokens
        self._rest = state.carry_ids
        yield from self._place()

    def add(
        self, ids_L: Int32Array, partition: TopicPartition, next_offset: int
    ) -> Iterator[Packed]:
        """Take one record's tokens; yields the blocks that it fills.

        A document of fewer than two tokens, specials included, predicts nothing and is left out.
        """
        self._offsets[partition] = next_offset
        self._records += 1
        self._tokens += len(ids_L)
        if not len(ids_L):
            return
        self._rest = self._with_specials(ids_L)
        yield from self._place()

    def passed(self, partition: TopicPartition, next_offset: int, topic_id: str = "") -> None:
        """Reading of the partition is behind offsets that hold no document."""
        self._offsets[partition] = next_offset
        if topic_id:
            self._topic_ids[partition.topic] = topic_id

    def flush(self) -> Iterator[Packed]:
        """Pad the block that is not full and yield it; nothing when there is none."""
        if self._filled:
            yield self._end_block()

    def _with_specials(self, ids_L: Int32Array) -> Int32Array:
        start, end = self._specials.start_id, self._specials.end_id
        pieces = [
            _NOTHING if start is None else np.array([start], np.int32),
            ids_L,
            _NOTHING if end is None else np.array([end], np.int32),
        ]
        return np.concatenate(pieces)

    def _place(self) -> Iterator[Packed]:
        """Put the document at hand into blocks until nothing is left of it."""
        while len(self._rest) > 1:
            first = self._filled
            piece = self._rest[: self._size - first]
            last = first + len(piece)
            self._ids_T[first:last] = piece
            self._labels_T[first + 1 : last] = piece[1:]
            self._positions_T[first:last] = np.arange(len(piece), dtype=np.int32)
            self._filled = last
            cut = len(piece) < len(self._rest)
            self._rest = self._rest[len(piece) - 1 :] if cut else _NOTHING
            # In one place nothing can be predicted, so a document never begins in the last one.
            if not self._packing or self._size - last < 2:
                yield self._end_block()
        self._rest = _NOTHING

    def _begin_block(self) -> None:
        self._filled = 0
        self._ids_T = np.full(self._size, self._specials.pad_id, np.int32)
        self._labels_T = np.full(self._size, IGNORED, np.int32)
        self._positions_T = np.zeros(self._size, np.int32)

    def _end_block(self) -> Packed:
        """The block, padded by a document of its own, and the state behind it."""
        padding = self._size - self._filled
        self._positions_T[self._filled :] = np.arange(padding, dtype=np.int32)
        block = Block(self._ids_T, self._labels_T, self._positions_T)
        state = StreamState(
            offsets=dict(self._offsets),
            carry_ids=self._rest,
            records=self._records,
            tokens=self._tokens,
            topic_ids=dict(self._topic_ids),
        )
        self._begin_block()
        return block, state
