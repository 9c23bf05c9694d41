"""Draws with replacement in proportion to weights, seeded and resumable, of any number.

Shape legend: C candidates, K draws, T tokens of a candidate, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamfreq.records import BoolArray, FloatArray, Int32Array, Int64Array

_CHUNK_TOKENS = 4_000_000
"""So many tokens are looked up at a time: 32 MB of float64."""


def example_weights(ids_CT: Int32Array, learned_CT: BoolArray, power_V: FloatArray) -> FloatArray:
    """The draw weight of each example: the mean of power_V over the tokens it teaches.

    power_V is p^-alpha: 0 draws uniformly, 1 by the mean inverse frequency. An example that
    teaches nothing has weight 0.
    """
    weights_C = np.zeros(len(ids_CT))
    step = max(1, _CHUNK_TOKENS // max(1, ids_CT.shape[1]))
    for first in range(0, len(ids_CT), step):
        learned = learned_CT[first : first + step]
        sums = (power_V[ids_CT[first : first + step]] * learned).sum(axis=1)
        weights_C[first : first + step] = sums / np.maximum(learned.sum(axis=1), 1)
    return weights_C


class WeightedDraws:
    """A generator of its own, and the cumulated weights to draw by.

    Cumulated sums and a binary search, in float64: torch.multinomial refuses more than 2^24
    candidates and rounds to float32.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.Generator(np.random.PCG64(seed))
        self._cumulated_C: FloatArray = np.empty(0)

    @property
    def random(self) -> np.random.Generator:
        """The generator, for other choices that have to be resumed together with the draws."""
        return self._random

    def weigh(self, weights_C: FloatArray) -> None:
        """Draw by these weights from now on; all 0: uniformly."""
        if len(weights_C) and not weights_C.any():
            weights_C = np.ones(len(weights_C))
        self._cumulated_C = np.cumsum(weights_C, dtype=np.float64)

    def draw(self, count: int) -> Int64Array:
        """Indices of `count` candidates (K,); there has to be one at least."""
        total = self._cumulated_C[-1]
        points_K = self._random.random(count) * total
        drawn_K = np.searchsorted(self._cumulated_C, points_K, side="right")
        # A point that rounding has put at the very end belongs to the last one with a weight.
        last = int(np.searchsorted(self._cumulated_C, total, side="left"))
        indices_K: Int64Array = np.minimum(drawn_K, last).astype(np.int64)
        return indices_K

    def state_dict(self) -> dict[str, Any]:
        """The generator's state; the weights belong to what is drawn from."""
        return {"generator": self._random.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the draws that would have followed."""
        self._random.bit_generator.state = state["generator"]
