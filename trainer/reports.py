"""What one optimizer step tells those who watch: losses by token, sums, norms, times.

Shape legend: N predicted positions of one forward pass, B * (T - 1), ignored ones included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TokenLosses:
    """One forward pass of this process, detached and still on the device.

    targets_N int64 (`IGNORED` where nothing was predicted), losses_N float32 plain cross entropy
    in nats, unweighted, before this step's update (0 where ignored), fresh_N bool.
    """

    targets_N: Tensor
    losses_N: Tensor
    fresh_N: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class StepReport:
    """One optimizer step over all forward passes and all processes.

    step: its number, from 1. token_losses: of this process alone. Sums are over everything:
    weighted_sum of w * loss, weight_sum of w, squared_weight_sum of w^2, plain_sum of the loss,
    tokens predicted; 0-dim tensors on the device. skipped: why no update was made; "" if it was.
    seconds: by name (forward_backward, weighting, update, ...), of this process.
    """

    step: int
    token_losses: tuple[TokenLosses, ...]
    weighted_sum: Tensor
    weight_sum: Tensor
    squared_weight_sum: Tensor
    plain_sum: Tensor
    tokens: Tensor
    gradient_norm: float
    learning_rate: float
    skipped: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
