"""What is minimised: each token's factor, the objective's terms, and the sum they are divided by.

The objective is sum(w * f(loss)) / sum(w) over all tokens of all forward passes of a step and of
all processes, so it does not depend on how a batch is split.

Shape legend: B rows, T tokens of a row, N = B * (T - 1) predicted positions, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.blocks import IGNORED
from trainer.config import LossConfig

LEAST_MISS = 1e-12
"""Keeps the derivative of (1 - p)^gamma finite for gamma < 1 where p is 1."""


def shifted_targets(labels_BT: Tensor) -> Tensor:
    """The token that each position predicts, (B, T - 1): labels one to the left."""
    return labels_BT[:, 1:]


def uses_weights(loss: LossConfig) -> bool:
    """Whether the kind of loss multiplies by the token weights."""
    return loss.kind in ("weighted", "focal")


def token_factors(
    targets_BN: Tensor, row_weights_B: Tensor, weights_V: Tensor | None = None
) -> Tensor:
    """w of every predicted position, float32, shaped like targets (B, T - 1).

    The weight of the target token times the weight of its row; 0 where the target is `IGNORED`.
    Without weights_V every token has weight 1.
    """
    predicted = targets_BN != IGNORED
    rows = row_weights_B.float()[:, None].expand(targets_BN.shape)
    if weights_V is None:
        return torch.where(predicted, rows, 0.0)
    weights = weights_V.float()[targets_BN.clamp_min(0)]
    return torch.where(predicted, weights * rows, 0.0)


def objective_factors(losses: Tensor, factors: Tensor, loss: LossConfig) -> Tensor:
    """The terms of the objective's numerator, float32: w * loss, for focal with (1 - p)^gamma.

    Source of the focal loss: Lin et al. 2017 (RetinaNet), equation 4; p = exp(-loss).
    """
    if loss.kind != "focal":
        return factors * losses
    miss = torch.expm1(-losses).neg().clamp_min(LEAST_MISS)
    return factors * (miss**loss.focal_gamma * losses)


def weighted_cross_entropy(
    logits_NV: Tensor,
    targets_N: Tensor,
    weights_V: Tensor,
    *,
    denominator: Tensor | float | None = None,
) -> Tensor:
    """Cross entropy with token weights, for a plain PyTorch loop; a scalar float32.

    It is sum(w[target] * ce) / denominator. Without a denominator that is the sum of w over these
    tokens, which is right for a loop of one batch a step on one process. With gradient
    accumulation or several processes, give the sum of w over all of them (with DDP divided by
    the number of processes, because DDP averages gradients); a mean of means is wrong.

    targets_N int64, already shifted; `-100` is ignored. Logits of any float type; weights and
    cross entropy are float32. Where every target is ignored, the loss is 0.
    """
    losses_N = torch.nn.functional.cross_entropy(
        logits_NV.float(), targets_N, reduction="none", ignore_index=IGNORED
    )
    ones_N = weights_V.new_ones(targets_N.shape, dtype=torch.float32)
    factors_N = token_factors(targets_N[:, None], ones_N, weights_V)[:, 0]
    divisor = torch.as_tensor(
        factors_N.sum() if denominator is None else denominator, device=losses_N.device
    ).float()
    total = (factors_N * losses_N).sum()
    return torch.where(divisor > 0, total / divisor.clamp_min(torch.finfo(torch.float32).tiny), 0.0)
