"""Sums of plain losses by band, kept on the device until somebody looks.

Shape legend: N positions of a forward pass, B bands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.blocks import IGNORED
from trainer.monitors.bands import NAMES, Bands
from trainer.reports import TokenLosses

Reduce = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class BandLoss:
    """Mean cross entropy in nats over `tokens` tokens."""

    loss: float
    tokens: int


class BandLosses:
    """Adds up losses by the band of the predicted token; nothing waits for the device."""

    def __init__(self) -> None:
        self._sums_2B: Tensor | None = None

    def add(self, losses: TokenLosses, bands: Bands, *, fresh_only: bool) -> None:
        """Take one forward pass's losses; fresh_only leaves replayed rows out."""
        if self._sums_2B is None:
            device = losses.losses_N.device
            self._sums_2B = torch.zeros((2, len(NAMES)), dtype=torch.float64, device=device)
        counts_N = losses.targets_N != IGNORED
        if fresh_only:
            counts_N = counts_N & losses.fresh_N
        band_N = bands.band_V[losses.targets_N.clamp_min(0)]
        finite_N = torch.nan_to_num(losses.losses_N.double(), 0.0, 0.0, 0.0)
        self._sums_2B[0].index_add_(0, band_N, torch.where(counts_N, finite_N, 0.0))
        self._sums_2B[1].index_add_(0, band_N, counts_N.double())

    def take(self, reduce: Reduce, device: torch.device) -> dict[str, BandLoss]:
        """Means of every band that had a token, over all processes; begins anew."""
        sums_2B = self._sums_2B
        if sums_2B is None:
            sums_2B = torch.zeros((2, len(NAMES)), dtype=torch.float64, device=device)
        self._sums_2B = None
        sums, counts = reduce(sums_2B).tolist()
        return {
            name: BandLoss(total / count, round(count))
            for name, total, count in zip(NAMES, sums, counts, strict=True)
            if count
        }


def mean(bands: dict[str, BandLoss]) -> BandLoss | None:
    """The loss over all bands; None without a token."""
    tokens = sum(band.tokens for band in bands.values())
    if not tokens:
        return None
    return BandLoss(sum(band.loss * band.tokens for band in bands.values()) / tokens, tokens)
