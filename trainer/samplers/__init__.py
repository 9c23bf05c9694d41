"""A frequency-aware sampler for map-style datasets, in any loop with a DataLoader.

Shape legend: C examples, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from torch.utils.data import Sampler

from streamfreq.records import FloatArray, Int32Array, Int64Array
from trainer.draws import WeightedDraws
from trainer.token_weights import TokenTables

__all__ = ["FrequencyAwareSampler", "Tables"]

_AT_A_TIME = 64
"""So many indices are drawn at once: new weights are used from the next draw on."""
_CHUNK_TOKENS = 4_000_000


class Tables(Protocol):
    """Where the tables in use come from: a `TokenWeights` that follows a job, or your own."""

    @property
    def tables(self) -> TokenTables: ...  # noqa: D102
    def refresh(self) -> bool:
        """Swap in the newest tables; whether they are others now."""
        ...


class FrequencyAwareSampler(Sampler[int]):
    """Draws examples with replacement, by the mean of p^-alpha over their tokens, p live.

    examples_ids: the token ids of each example. The draws are made in the process that iterates
    the sampler, never in a loader's workers, so new weights are used at once: `refresh` of
    `weights` is called every 64 draws. Any number of examples; seeded; `state_dict` resumes.
    With several processes all draw the same and each takes every `count`-th.

    >>> from trainer.token_weights import TokenTables
    >>> sampler = FrequencyAwareSampler([[1, 2], [3]], num_samples=4, seed=1)
    >>> sampler.use(TokenTables.neutral(10))
    >>> len(list(sampler))
    4
    """

    def __init__(
        self,
        examples_ids: Sequence[Sequence[int] | Int32Array],
        weights: Tables | None = None,
        *,
        num_samples: int | None = None,
        alpha: float = 0.7,
        seed: int = 0,
        rank: int = 0,
        count: int = 1,
    ) -> None:
        lengths_C = np.fromiter((len(ids) for ids in examples_ids), np.int64, len(examples_ids))
        if not len(lengths_C):
            raise ValueError("examples_ids: there is no example to draw")
        self._ids_N = np.empty(int(lengths_C.sum()), np.int32)
        self._ends_C: Int64Array = np.cumsum(lengths_C)
        for ids, end in zip(examples_ids, self._ends_C.tolist(), strict=True):
            self._ids_N[end - len(ids) : end] = ids
        self._weights = weights
        self._num_samples = len(lengths_C) if num_samples is None else num_samples
        self._alpha = alpha
        self._rank, self._count = rank, count
        self._draws = WeightedDraws(seed)
        self._drawn: list[int] = []
        self._taken = 0
        self.use(TokenTables.neutral(int(self._ids_N.max(initial=0)) + 1))
        if weights is not None:
            self.use(weights.tables)

    def __len__(self) -> int:
        return -(-self._num_samples // self._count)

    def __iter__(self) -> Iterator[int]:
        """The rest of this round's indices: after `load_state_dict` only those left of it."""
        while self._taken < len(self):
            if not self._drawn:
                self._draw()
            self._taken += 1
            yield self._drawn.pop(0)
        self._taken = 0

    def use(self, tables: TokenTables) -> None:
        """Draw by these frequencies from now on; raises ValueError for ids beyond their size."""
        share_V = tables.draw_share_V.detach().cpu().numpy().astype(np.float64)
        highest = int(self._ids_N.max(initial=0))
        if highest >= len(share_V):
            raise ValueError(
                f"examples_ids hold the id {highest}, but the tables have {len(share_V)} ids"
            )
        self._draws.weigh(self._example_weights(share_V**-self._alpha))
        self._drawn = []

    def state_dict(self) -> dict[str, Any]:
        """Where in the round we are, what is drawn already, and the generator."""
        return {"taken": self._taken, "drawn": [*self._drawn], "draws": self._draws.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the draws that would have followed, given the same tables."""
        self._taken, self._drawn = state["taken"], [*state["drawn"]]
        self._draws.load_state_dict(state["draws"])

    def _draw(self) -> None:
        if self._weights is not None and self._weights.refresh():
            self.use(self._weights.tables)
        drawn = self._draws.draw(_AT_A_TIME * self._count)
        self._drawn = drawn[self._rank :: self._count].tolist()

    def _example_weights(self, power_V: FloatArray) -> FloatArray:
        """Means of power_V over each example's tokens; 0 for an empty one."""
        sums_C = np.zeros(len(self._ends_C))
        starts_C = np.concatenate([[0], self._ends_C[:-1]])
        first = 0
        while first < len(sums_C):
            reach = starts_C[first] + _CHUNK_TOKENS
            last = max(first + 1, int(np.searchsorted(self._ends_C, reach, side="right")))
            tokens = power_V[self._ids_N[starts_C[first] : self._ends_C[last - 1]]]
            cumulated = np.concatenate([[0.0], np.cumsum(tokens)])
            ends = self._ends_C[first:last] - starts_C[first]
            begins = starts_C[first:last] - starts_C[first]
            sums_C[first:last] = cumulated[ends] - cumulated[begins]
            first = last
        means_C: FloatArray = sums_C / np.maximum(self._ends_C - starts_C, 1)
        return means_C
