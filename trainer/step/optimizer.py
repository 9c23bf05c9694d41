"""AdamW and the schedule of its learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from trainer.config import OptimizerConfig


def build_optimizer(groups: Sequence[dict[str, Any]], config: OptimizerConfig) -> AdamW:
    """AdamW over parameter groups; a group's own "lr" or "weight_decay" stands before config's."""
    devices = {param.device.type for group in groups for param in group["params"]}
    return AdamW(
        [dict(group) for group in groups],
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
        fused=devices <= {"cpu", "cuda"},
    )


def build_schedule(
    optimizer: torch.optim.Optimizer, config: OptimizerConfig, max_steps: int
) -> LambdaLR:
    """The learning rate by number of updates made, for every group times its own peak rate.

    It rises linearly to the peak over warmup_steps (the first update has 1 / warmup_steps of
    it), then follows `config.schedule`; cosine and linear are 0 from max_steps on.
    """
    return LambdaLR(optimizer, rate_factor(config, max_steps))


def rate_factor(config: OptimizerConfig, max_steps: int) -> Callable[[int], float]:
    """The factor of the peak rate for the update after so many updates."""
    warmup = config.warmup_steps

    def factor(updates: int) -> float:
        if updates < warmup:
            return (updates + 1) / warmup
        if config.schedule == "constant":
            return 1.0
        done = min(1.0, (updates - warmup) / max(1, max_steps - warmup))
        return 1.0 - done if config.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))

    return factor
