"""The rare-band guard: weighting that makes the tail worse and not better is turned down."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer.config import MonitorsConfig

log = logging.getLogger("trainer.monitors")

_SMOOTHING = 0.3
_LEAST_STRENGTH = 0.05
_FLOOR = 1e-2
"""Nats. Below it a loss counts as learned, and its changes say nothing."""


@dataclass(slots=True)
class _Curve:
    """An exponentially smoothed loss, and its best so far."""

    value: float | None = None
    best: float | None = None

    def add(self, loss: float) -> float:
        """The smoothed loss in units of its best."""
        old = loss if self.value is None else self.value
        self.value = old + _SMOOTHING * (loss - old)
        self.best = self.value if self.best is None else min(self.best, self.value)
        return max(self.value, _FLOOR) / max(self.best, _FLOOR)


class RareBandGuard:
    """Compares how far tail and rest are from their own best losses.

    When the tail has grown `guard_ratio` times more than the rest for `guard_patience` intervals
    in a row, the strength of the weights is multiplied by `guard_strength`; after four times as
    many calm intervals it is raised again by the same factor, to 1 at most.
    """

    def __init__(self, config: MonitorsConfig) -> None:
        self._config = config
        self._tail, self._rest = _Curve(), _Curve()
        self._bad = self._calm = 0
        self.strength = 1.0

    def observe(self, tail_loss: float, rest_loss: float) -> float:
        """The strength to use from now on, after one more interval's mean losses.

        An interval with a loss that is no finite number is passed over.
        """
        if not (math.isfinite(tail_loss) and math.isfinite(rest_loss)):
            return self.strength
        config = self._config
        tail, rest = self._tail.add(tail_loss), self._rest.add(rest_loss)
        diverging = tail >= config.guard_ratio * rest
        self._bad = self._bad + 1 if diverging else 0
        self._calm = 0 if diverging else self._calm + 1
        if self._bad >= config.guard_patience:
            self._lower(tail, rest)
        elif self.strength < 1.0 and self._calm >= 4 * config.guard_patience:
            self._calm = 0
            self.strength = min(1.0, self.strength / config.guard_strength)
            log.info("the tail is calm again: strength of the weights is %.3g", self.strength)
        return self.strength

    def _lower(self, tail: float, rest: float) -> None:
        self._bad = 0
        said = f"loss of the tail is {tail:.2f} times its best, that of the rest {rest:.2f} times"
        if self._config.guard_strength == 1.0:
            log.warning("%s (monitors.guard_strength is 1: nothing is changed)", said)
            return
        self.strength = max(_LEAST_STRENGTH, self.strength * self._config.guard_strength)
        # From here on the tail is compared with what it is now.
        self._tail.best, self._rest.best = self._tail.value, self._rest.value
        log.warning("%s: strength of the weights is lowered to %.3g", said, self.strength)

    def state_dict(self) -> dict[str, Any]:
        """The curves, the counts and the strength."""
        return {
            "tail": [self._tail.value, self._tail.best],
            "rest": [self._rest.value, self._rest.best],
            "bad": self._bad,
            "calm": self._calm,
            "strength": self.strength,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        self._tail, self._rest = _Curve(*state["tail"]), _Curve(*state["rest"])
        self._bad, self._calm = state["bad"], state["calm"]
        self.strength = state["strength"]
