"""TrainStep: forward and backward over the batches of a step, checks, clipping, update.

Shape legend: B rows, T tokens of a row, N predicted positions, V vocabulary.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from trainer.blocks import IGNORED, Batch
from trainer.config import LossConfig, StepConfig
from trainer.losses import objective_factors, shifted_targets, token_factors, uses_weights
from trainer.reports import StepReport, TokenLosses
from trainer.step.gradients import clip_gradients, drop_gradients
from trainer.step.guard import BadStepGuard, Verdict, back_off, scale_is_searched

if TYPE_CHECKING:
    from trainer.token_weights import TokenTables

log = logging.getLogger("trainer.step")


class TrainStep:
    """Runs optimizer steps; every process calls `run` with its own batches, equally many.

    module is a `LanguageModelLoss`, optimizer AdamW, both prepared by the accelerator (which has
    gradient_accumulation_steps = 1: the sums are taken here). lr_scheduler is a torch scheduler
    of the optimizer, not prepared; it moves only when an update was made. before_update is
    called behind the backward pass, with unscaled gradients, in front of the clipping.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: Any,
        lr_scheduler: Any,
        accelerator: Accelerator,
        loss: LossConfig,
        step: StepConfig,
        before_update: Callable[[], None] | None = None,
    ) -> None:
        self.module = module
        self.optimizer = optimizer
        self.lr_scheduler = lr_scheduler
        self.accelerator = accelerator
        self.before_update = before_update
        self.steps = 0
        self._loss = loss
        self._max_grad_norm = step.max_grad_norm
        self._guard = BadStepGuard(step.max_bad_steps)

    def run(self, batches: Sequence[Batch], tables: TokenTables) -> StepReport:
        """One step over these batches, with the weights of these tables.

        1. The sum of the weights over all batches and processes. 2. Forward and backward of each
        batch; gradients are exchanged with the last. 3. The sums of the losses, and the norm of
        the gradients. 4. The update, or none where something is not finite or nothing was
        predicted: then parameters, optimizer and schedule stay as they are, on all processes.

        Raises DataRefused after `max_bad_steps` steps in a row with NaN or infinity.
        """
        self.steps += 1
        clock = _Stopwatch()
        factors = self._factors(batches, tables)
        sizes = self._sum_over_all(_sizes(batches, factors))
        clock.lap("weighting")
        sums, token_losses = self._learn(batches, factors, sizes[0], tables)
        clock.lap("forward_backward")
        sums = self._sum_over_all(sums)
        self.accelerator.unscale_gradients(self.optimizer)
        if self.before_update is not None:
            self.before_update()
        norm = clip_gradients(self.module, self.optimizer, self._max_grad_norm)
        rate = max(float(group["lr"]) for group in self.optimizer.param_groups)
        verdict, gradient_norm = self._judge(sizes, sums, norm)
        self._update(verdict)
        clock.lap("update")
        self._guard.note(verdict, self.steps)
        return StepReport(
            step=self.steps,
            token_losses=token_losses,
            weighted_sum=sums[0],
            weight_sum=sizes[0],
            squared_weight_sum=sizes[1],
            plain_sum=sums[1],
            tokens=sizes[2],
            gradient_norm=gradient_norm,
            learning_rate=rate,
            skipped=verdict.skipped,
            seconds=clock.seconds,
        )

    def state_dict(self) -> dict[str, int]:
        """What resumes the numbering of steps, and the count of bad ones in a row."""
        return {"steps": self.steps, "bad_steps": self._guard.bad_steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on where `state_dict` was taken."""
        self.steps = state["steps"]
        self._guard.bad_steps = state["bad_steps"]

    def _factors(self, batches: Sequence[Batch], tables: TokenTables) -> list[Tensor]:
        weights_V = tables.weights_V if uses_weights(self._loss) else None
        return [
            token_factors(shifted_targets(batch.labels_BT), batch.row_weights_B, weights_V)
            for batch in batches
        ]

    def _learn(
        self,
        batches: Sequence[Batch],
        factors: Sequence[Tensor],
        weight_sum: Tensor,
        tables: TokenTables,
    ) -> tuple[Tensor, tuple[TokenLosses, ...]]:
        """Forward and backward; sums of the objective and of the plain loss, and the losses.

        Processes average their gradients, so each multiplies by their number to make it a sum.
        """
        shares = self.accelerator.num_processes / weight_sum
        scale = torch.where(weight_sum > 0, shares, 0.0).float()
        bias_V = self._loss.tau * tables.bias_V if self._loss.kind == "logit_adjustment" else None
        sums = torch.zeros(2, dtype=torch.float64, device=weight_sum.device)
        token_losses = []
        for number, (batch, factors_BN) in enumerate(zip(batches, factors, strict=True), 1):
            last = number == len(batches)
            with nullcontext() if last else self.accelerator.no_sync(self.module):
                losses = self.module(batch.ids_BT, batch.positions_BT, batch.labels_BT, bias_V)
                trained_BN, plain_BN = (losses, losses.detach()) if bias_V is None else losses
                objective = objective_factors(trained_BN, factors_BN, self._loss).sum()
                self.accelerator.backward(objective * scale)
            plain_N = plain_BN.detach().flatten()
            sums += torch.stack((objective.detach(), plain_N.sum())).double()
            token_losses.append(_token_losses(batch, plain_N))
        return sums, tuple(token_losses)

    def _sum_over_all(self, values: Tensor) -> Tensor:
        if self.accelerator.num_processes == 1:
            return values
        total: Tensor = self.accelerator.reduce(values, "sum")
        return total

    def _judge(self, sizes: Tensor, sums: Tensor, norm: Tensor) -> tuple[Verdict, float]:
        """One look at the numbers on the host; they are the same on all processes."""
        seen = torch.cat((sizes[:1], sums, norm.double().reshape(1).to(sizes.device)))
        weight_sum, weighted_sum, plain_sum, gradient_norm = seen.tolist()
        finite = math.isfinite(gradient_norm)
        searched = not finite and scale_is_searched(self.accelerator.scaler)
        verdict = Verdict.of(weight_sum, (weighted_sum, plain_sum), gradient_norm, searched)
        return verdict, gradient_norm

    def _update(self, verdict: Verdict) -> None:
        if verdict.skipped:
            log.warning("step %d is skipped: %s", self.steps, verdict.skipped)
            back_off(self.accelerator.scaler, lower=verdict.overflow)
        else:
            self.optimizer.step()
            self.lr_scheduler.step()
        drop_gradients(self.optimizer)


def _sizes(batches: Sequence[Batch], factors: Sequence[Tensor]) -> Tensor:
    """(3,) float64: sum of w, sum of w^2, tokens that are predicted."""
    w = torch.cat([factors_BN.flatten() for factors_BN in factors]).double()
    predicted = [(shifted_targets(batch.labels_BT) != IGNORED).sum() for batch in batches]
    return torch.stack((w.sum(), w.square().sum(), torch.stack(predicted).sum().double()))


def _token_losses(batch: Batch, losses_N: Tensor) -> TokenLosses:
    targets_BN = shifted_targets(batch.labels_BT)
    fresh_BN = batch.fresh_B[:, None].expand(targets_BN.shape)
    return TokenLosses(targets_BN.flatten(), losses_N, fresh_BN.flatten())


class _Stopwatch:
    """Seconds of this process by name; on a GPU the work itself may end later."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now
