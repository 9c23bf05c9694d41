"""Cross entropy from hidden states, in pieces of rows, so that all logits are never held.

Shape legend: N positions, D hidden size, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.blocks import IGNORED
from trainer.losses.chunks import low_precision_cross_entropy

LEAST_ROWS = {"cpu": 128, "cuda": 512}
"""Smaller pieces make the matrix products inefficient: on a CPU they cost 4 times the plain loss
with the automatic size (2 to 8 rows for V = 50k), and less than the plain loss with 128."""


def is_available(device: torch.device) -> bool:
    """Whether this PyTorch has the operation, and this device is one it was checked on."""
    return hasattr(torch.nn.functional, "linear_cross_entropy") and device.type in LEAST_ROWS


def rows_at_once(hidden_ND: Tensor, vocabulary: int) -> int:
    """Rows of one piece: its logits take about as much memory as the hidden states."""
    fair = -(-hidden_ND.numel() // vocabulary)
    return max(1, min(len(hidden_ND), max(LEAST_ROWS[hidden_ND.device.type], fair)))


def fused_cross_entropy(
    hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor
) -> Tensor:
    """Cross entropy of hidden @ weight.T + bias against targets: (N,) float32, 0 where ignored.

    In half precision on CUDA (by autocast or by the parameters) the products run in it. On the
    CPU they run in float32, in which they are faster.
    """
    device_type = hidden_ND.device.type
    rows = rows_at_once(hidden_ND, weight_VD.shape[0])
    dtype = _product_type(hidden_ND)
    with torch.autocast(device_type, enabled=False):
        hidden_ND = hidden_ND.to(dtype)
        weight_VD = weight_VD.to(dtype)
        if dtype not in (torch.float32, torch.float64):
            return low_precision_cross_entropy(hidden_ND, weight_VD, bias_V, targets_N, rows)
        return torch.nn.functional.linear_cross_entropy(
            hidden_ND,
            weight_VD,
            targets_N,
            linear_bias=None if bias_V is None else bias_V.to(dtype),
            reduction="none",
            ignore_index=IGNORED,
            options=torch.nn.LinearCrossEntropyOptions(batch_chunk_size=rows),
        ).float()


def _product_type(hidden_ND: Tensor) -> torch.dtype:
    device_type = hidden_ND.device.type
    half = (torch.bfloat16, torch.float16)
    if device_type == "cpu":
        return torch.float32 if hidden_ND.dtype in half else hidden_ND.dtype
    if torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return hidden_ND.dtype
