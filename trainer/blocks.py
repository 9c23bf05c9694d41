"""The words that the trainer's parts share: blocks of tokens, batches of them, stream positions.

Shape legend: T tokens of a block, B rows of a batch, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from streamfreq.records import Int32Array, TopicPartition

IGNORED = -100
"""Label of a position from which nothing is learned: PyTorch's and transformers' own value."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One row of T tokens: documents side by side, each of which sees only itself.

    labels_T is ids_T, or `IGNORED`: for the first token of each document (nothing in front of it
    may predict it) and for padding. As transformers has it, labels are not shifted: position t
    is predicted from what stands before it. positions_T begins anew with 0 at each document;
    padding is a document of its own.
    """

    ids_T: Int32Array
    labels_T: Int32Array
    positions_T: Int32Array

    def __len__(self) -> int:
        return len(self.ids_T)


@dataclass(frozen=True, slots=True)
class StreamState:
    """Where reading goes on behind a block, so that nothing is skipped and nothing read twice.

    offsets: the next record of each partition to be read. carry_ids: what is left of the one
    document that the block cut (empty when it cut none); it stands in front of those records.
    records, tokens: how many have gone into blocks so far, from the very beginning.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    carry_ids: Int32Array = field(default_factory=lambda: np.empty(0, np.int32))
    records: int = 0
    tokens: int = 0
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """B blocks as tensors on the device: ids, labels, positions (B, T) int64.

    row_weights_B float32 multiplies every token of a row (importance of replayed rows; else 1).
    fresh_B bool: rows that were never trained on before.
    """

    ids_BT: Tensor
    labels_BT: Tensor
    positions_BT: Tensor
    row_weights_B: Tensor
    fresh_B: Tensor

    @staticmethod
    def of(
        blocks: Sequence[Block],
        fresh: Sequence[bool] | None = None,
        row_weights: Sequence[float] | None = None,
        device: torch.device | str = "cpu",
    ) -> Batch:
        """The batch of these blocks, which are equally long."""

        def stack(rows: list[Int32Array]) -> Tensor:
            return torch.from_numpy(np.stack(rows).astype(np.int64)).to(device, non_blocking=True)

        count = len(blocks)
        weights = np.ones(count, np.float32) if row_weights is None else row_weights
        return Batch(
            stack([block.ids_T for block in blocks]),
            stack([block.labels_T for block in blocks]),
            stack([block.positions_T for block in blocks]),
            torch.as_tensor(np.asarray(weights, np.float32), device=device),
            torch.as_tensor([True] * count if fresh is None else list(fresh), device=device),
        )

    def __len__(self) -> int:
        return int(self.ids_BT.shape[0])

    def rows(self, first: int, last: int) -> Batch:
        """Rows `first` to `last` (exclusive)."""
        return Batch(
            self.ids_BT[first:last],
            self.labels_BT[first:last],
            self.positions_BT[first:last],
            self.row_weights_B[first:last],
            self.fresh_B[first:last],
        )
