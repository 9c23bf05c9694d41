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


class Settings:
    """What the configuration says about the optimizer, to be kept over a resumed state.

    A saved optimizer holds the rates that it was saved with; a run that goes on is to follow
    its configuration, which may be another one now. Made before the state is loaded.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, schedule: LambdaLR) -> None:
        self._optimizer = optimizer
        self._schedule = schedule
        self._groups = [
            {name: group[name] for name in ("initial_lr", "betas", "eps", "weight_decay")}
            for group in optimizer.param_groups
        ]

    def apply(self) -> None:
        """Set rates, moments' decay and weight decay again, for the updates made so far."""
        schedule = self._schedule
        schedule.base_lrs = [group["initial_lr"] for group in self._groups]
        factor = schedule.lr_lambdas[0](schedule.last_epoch)
        for group, wanted in zip(self._optimizer.param_groups, self._groups, strict=True):
            group.update(wanted, lr=wanted["initial_lr"] * factor)
        schedule._last_lr = [group["lr"] for group in self._optimizer.param_groups]


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
