"""The fused loss for products in half precision: its losses and factors stay float32.

torch's own operation returns the losses in the type of its input, and by that rounds the token
weights, which come back as the gradient of the losses, to 8 or 11 bits.

Shape legend: N positions, D hidden size, V vocabulary, C rows of a piece.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from trainer.blocks import IGNORED


def low_precision_cross_entropy(
    hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor, rows: int
) -> Tensor:
    """Cross entropy (N,) float32 of hidden @ weight.T + bias, `rows` positions at a time.

    hidden and weight have the type of the products; bias_V is added in float32.
    """
    losses_N = _Chunked.apply(hidden_ND, weight_VD, bias_V, targets_N, rows)
    return cast(Tensor, losses_N)


class _Chunked(torch.autograd.Function):
    """Logits are computed again in the backward pass, from log-sums kept of the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        rows: int,
    ) -> Tensor:
        log_sums = []
        picked = []
        for first in range(0, len(hidden_ND), rows):
            part = slice(first, first + rows)
            logits_CV = _logits(hidden_ND[part], weight_VD, bias_V)
            log_sums.append(logits_CV.logsumexp(1))
            picked.append(logits_CV.gather(1, targets_N[part].clamp_min(0)[:, None])[:, 0])
        log_sums_N = torch.cat(log_sums)
        ctx.save_for_backward(hidden_ND, weight_VD, bias_V, targets_N, log_sums_N)
        ctx.rows = rows
        return torch.where(targets_N != IGNORED, log_sums_N - torch.cat(picked), 0.0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, weight_VD, bias_V, targets_N, log_sums_N = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        factors_N = torch.where(targets_N != IGNORED, gradients[0].float(), 0.0)
        hidden_grads = []
        weight_grad = torch.zeros_like(weight_VD, dtype=torch.float32) if needs_weight else None
        bias_grad = torch.zeros_like(bias_V, dtype=torch.float32) if needs_bias else None
        for first in range(0, len(hidden_ND), ctx.rows):
            part = slice(first, first + ctx.rows)
            factors_C1 = factors_N[part, None]
            grad_CV = _logits(hidden_ND[part], weight_VD, bias_V)
            grad_CV.sub_(log_sums_N[part, None]).exp_().mul_(factors_C1)
            grad_CV.scatter_add_(1, targets_N[part].clamp_min(0)[:, None], -factors_C1)
            if bias_grad is not None:
                bias_grad += grad_CV.sum(0)
            half_CV = grad_CV.to(weight_VD.dtype)
            if needs_hidden:
                hidden_grads.append(half_CV @ weight_VD)
            if weight_grad is not None:
                weight_grad += half_CV.T @ hidden_ND[part]
        return (
            torch.cat(hidden_grads) if needs_hidden else None,
            None if weight_grad is None else weight_grad.to(weight_VD.dtype),
            None if bias_grad is None else bias_grad.to(bias_V.dtype),
            None,
            None,
        )


def _logits(hidden_CD: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> Tensor:
    logits_CV = torch.nn.functional.linear(hidden_CD, weight_VD).float()
    return logits_CV if bias_V is None else logits_CV.add_(bias_V.float())
