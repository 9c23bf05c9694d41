"""From the rows that the main process has chosen to each process's batches of one step.

The row order does not depend on how many processes there are: forward pass m of process r takes
rows (m * R + r) * B to (m * R + r + 1) * B of the step, for R processes and B rows a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import torch
from torch import Tensor

from trainer.batches import Row
from trainer.blocks import Batch
from trainer.subscriber import Ranks


class Order(Enum):
    """What every process does next."""

    TRAIN = "train"
    WAIT = "wait"
    END = "end"


@dataclass(frozen=True, slots=True)
class StepShape:
    """G rows of T tokens in one step: accumulation * processes * rows."""

    rows: int
    accumulation: int
    processes: int
    block_size: int

    @property
    def step_rows(self) -> int:
        """G."""
        return self.rows * self.accumulation * self.processes


class RowSharing:
    """Hands the main process's order, and its rows, to all."""

    def __init__(self, ranks: Ranks, shape: StepShape, device: torch.device) -> None:
        self._ranks = ranks
        self._shape = shape
        self._device = device

    def share(self, order: Order, rows: Sequence[Row] = ()) -> tuple[Order, list[Batch]]:
        """The main process's order and this process's batches (empty unless it is TRAIN)."""
        order = Order(self._ranks.broadcast_object(order.value))
        if order is not Order.TRAIN:
            return order, []
        numbers_3GT, weights_2G = self._tensors(rows)
        whole = Batch(
            numbers_3GT[0].long(),
            numbers_3GT[1].long(),
            numbers_3GT[2].long(),
            weights_2G[0],
            weights_2G[1] > 0,
        )
        return order, self._own(whole)

    def _tensors(self, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
        shape = self._shape
        if self._ranks.is_main:
            blocks = [row.block for row in rows]
            numbers_3GT = torch.from_numpy(
                np.stack(
                    [
                        np.stack([block.ids_T for block in blocks]),
                        np.stack([block.labels_T for block in blocks]),
                        np.stack([block.positions_T for block in blocks]),
                    ]
                ).astype(np.int32)
            ).to(self._device)
            weights = [[row.weight for row in rows], [float(row.fresh) for row in rows]]
            weights_2G = torch.tensor(weights, dtype=torch.float32, device=self._device)
        else:
            size = (3, shape.step_rows, shape.block_size)
            numbers_3GT = torch.empty(size, dtype=torch.int32, device=self._device)
            weights_2G = torch.empty((2, shape.step_rows), device=self._device)
        numbers_3GT = self._ranks.broadcast_tensor(numbers_3GT)
        return numbers_3GT, self._ranks.broadcast_tensor(weights_2G)

    def _own(self, whole: Batch) -> list[Batch]:
        shape, rank = self._shape, self._ranks.rank
        firsts = [(m * shape.processes + rank) * shape.rows for m in range(shape.accumulation)]
        return [whole.rows(first, first + shape.rows) for first in firsts]
