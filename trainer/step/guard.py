"""Which steps make no update, and when so many were bad that training must stop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from streamfreq.errors import DataRefused


@dataclass(frozen=True, slots=True)
class Verdict:
    """skipped: why there is no update, or "". bad: it counts against `max_bad_steps`.

    overflow: the losses are finite and the gradients are not, for which fp16's scale is lowered.
    """

    skipped: str = ""
    bad: bool = False
    overflow: bool = False

    @staticmethod
    def of(
        weight_sum: float, losses: tuple[float, ...], gradient_norm: float, searched: bool
    ) -> Verdict:
        """From numbers that are the same on all processes; searched: as `scale_is_searched`."""
        if not all(map(math.isfinite, losses)):
            return Verdict("the loss is not finite", bad=True)
        if not math.isfinite(weight_sum):
            return Verdict("the token weights are not finite", bad=True)
        if weight_sum <= 0:
            return Verdict("no tokens")
        if math.isfinite(gradient_norm):
            return Verdict()
        if searched:
            return Verdict("the fp16 loss scale was too high", overflow=True)
        return Verdict("the gradient is not finite", bad=True, overflow=True)


class BadStepGuard:
    """Counts bad steps in a row."""

    def __init__(self, max_bad_steps: int) -> None:
        self.bad_steps = 0
        self._max = max_bad_steps

    def note(self, verdict: Verdict, step: int) -> None:
        """Take in a step; raises DataRefused where it is the last that may be bad."""
        if not verdict.bad:
            if not verdict.skipped:
                self.bad_steps = 0
            return
        self.bad_steps += 1
        if self.bad_steps >= self._max:
            raise DataRefused(
                f"step {step}: {verdict.skipped}, bad step {self.bad_steps} in a row "
                f"(step.max_bad_steps = {self._max}): lower optimizer.learning_rate, set "
                "step.precision to bf16 or no, or look at the latest records"
            )


def scale_is_searched(scaler: Any) -> bool:
    """Whether an overflow may come from fp16's loss scale alone: it is still above 1."""
    return scaler is not None and scaler.is_enabled() and scaler.get_scale() > 1.0


def back_off(scaler: Any, lower: bool) -> None:
    """Make the scaler ready for the next step after a skipped one, with a lower scale if so.

    The new scale is given to the scaler and not left to it: with sharded gradients each process
    has looked for infinities in its own shard alone, and all must go on with the same scale.
    """
    if scaler is not None and scaler.is_enabled():
        scaler.update(scaler.get_scale() * (scaler.get_backoff_factor() if lower else 1.0))
