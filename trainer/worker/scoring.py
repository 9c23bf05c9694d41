"""Test-then-train where the training forward can't be the test: a forward without dropout."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from trainer.blocks import IGNORED, Batch
from trainer.modes import evaluating
from trainer.reports import TokenLosses


class Scorer:
    """Scores the new rows of a step with the model as it is before the step."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def score(self, batches: Sequence[Batch]) -> list[TokenLosses]:
        """Plain cross entropy of every row; replayed rows are marked as not fresh."""
        with evaluating(self._module), torch.no_grad():
            return [self._score(batch) for batch in batches]

    def _score(self, batch: Batch) -> TokenLosses:
        losses_BS = self._module(batch.ids_BT, batch.positions_BT, batch.labels_BT)
        targets_BS = batch.labels_BT[:, 1:]
        fresh_BS = batch.fresh_B[:, None].expand_as(targets_BS) & (targets_BS != IGNORED)
        return TokenLosses(
            targets_BS.reshape(-1), losses_BS.float().reshape(-1), fresh_BS.reshape(-1)
        )
