"""Gradients of all trained parameters: their norm, clipping, dropping."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


def parameters_of(optimizer: Any) -> list[nn.Parameter]:
    """All parameters that the optimizer holds, in its order."""
    return [param for group in optimizer.param_groups for param in group["params"]]


def clip_gradients(module: nn.Module, optimizer: Any, max_norm: float) -> Tensor:
    """Scale the gradients down to max_norm (0: leave them) and return their norm before, 0-dim.

    With FSDP the norm is that of the whole gradients, on every process.
    """
    limit = max_norm if max_norm > 0 else math.inf
    own = getattr(module, "clip_grad_norm_", None)
    if callable(own):
        # The first FSDP flattens parameters; only the module itself knows their norm.
        norm: Any = own(limit)
    elif max_norm > 0:
        norm = torch.nn.utils.clip_grad_norm_(parameters_of(optimizer), limit)
    else:
        grads = [param.grad for param in parameters_of(optimizer) if param.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
    whole: Tensor = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    return whole


def drop_gradients(optimizer: Any) -> None:
    """Forget the gradients, so that the next step begins without any."""
    optimizer.zero_grad(set_to_none=True)
