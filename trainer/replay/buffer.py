"""A bounded buffer of blocks to train on again, drawn by the frequency of their tokens now.

Shape legend: C capacity, N blocks kept, T tokens of a block, K draws, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamfreq.records import BoolArray, FloatArray, Int32Array
from trainer.blocks import IGNORED, Block
from trainer.config import ReplayConfig
from trainer.draws import WeightedDraws, example_weights
from trainer.token_weights import TokenTables

_FIRST_ROWS = 64


class ReplayBuffer:
    """Up to `capacity` blocks; memory grows with what is kept, 9 bytes a token, to that bound.

    Draws are with replacement, by the mean of p^-alpha over the tokens that a block teaches, p
    from the tables given to `reweigh` last. State and draws are bit for bit resumable.
    """

    def __init__(self, config: ReplayConfig, block_size: int, seed: int) -> None:
        self._config = config
        self._draws = WeightedDraws(seed)
        self._power_V: FloatArray | None = None
        self._kept = 0
        self._seen = 0
        self._oldest = 0
        self._weighed = False
        self._ids_NT: Int32Array = np.empty((0, block_size), np.int32)
        self._learned_NT: BoolArray = np.empty((0, block_size), np.bool_)
        self._positions_NT: Int32Array = np.empty((0, block_size), np.int32)
        self._weights_N: FloatArray = np.empty(0)
        self._grow(min(_FIRST_ROWS, config.capacity), block_size)

    def __len__(self) -> int:
        return self._kept

    def add(self, block: Block) -> None:
        """Keep a block: in the place of the oldest, or by chance in place of any (reservoir).

        The reservoir is algorithm R of Vitter, "Random sampling with a reservoir", ACM TOMS 11,
        1985: at any time each block seen so far is kept with the same probability.
        """
        place = self._place()
        self._seen += 1
        if place is None:
            return
        if place >= len(self._ids_NT):
            self._grow(min(2 * len(self._ids_NT), self._config.capacity), len(block))
        self._ids_NT[place] = block.ids_T
        self._learned_NT[place] = block.labels_T != IGNORED
        self._positions_NT[place] = block.positions_T
        self._weights_N[place] = self._weight(place)
        if place == self._kept:
            self._kept += 1
        elif self._config.eviction == "oldest":
            self._oldest = (place + 1) % self._kept
        self._weighed = False

    def draw(self, count: int) -> tuple[list[Block], list[float]]:
        """K blocks and their row weights; the buffer holds one at least.

        Row weights are 1, or with `importance` = b the correction (1 / (N P))^b of the draw
        probability P, divided by its expectation, so that the loss keeps its scale. (Schaul et
        al., "Prioritized Experience Replay", ICLR 2016, section 3.4, divide by the largest.)
        """
        if not self._weighed:
            self._draws.weigh(self._weights_N[: self._kept])
            self._weighed = True
        indices_K = self._draws.draw(count)
        blocks = [self._block(int(index)) for index in indices_K]
        exponent = self._config.importance
        if not exponent:
            return blocks, [1.0] * count
        weights_N = self._weights_N[: self._kept]
        total = float(weights_N.sum())
        if not total:
            return blocks, [1.0] * count
        p_N = weights_N / total
        drawn_N = p_N[p_N > 0]
        expected = float((drawn_N * (self._kept * drawn_N) ** -exponent).sum())
        return blocks, list((self._kept * p_N[indices_K]) ** -exponent / expected)

    def reweigh(self, tables: TokenTables) -> None:
        """Draw by the frequencies of these tables from now on."""
        share_V = tables.draw_share_V.detach().cpu().numpy().astype(np.float64)
        self._power_V = share_V**-self._config.alpha
        rows = slice(0, self._kept)
        self._weights_N[rows] = example_weights(
            self._ids_NT[rows], self._learned_NT[rows], self._power_V
        )
        self._weighed = False

    def state_dict(self) -> dict[str, Any]:
        """Blocks, counts and the generator; the weights come from the tables again."""
        rows = slice(0, self._kept)
        return {
            "ids": self._ids_NT[rows],
            "learned": self._learned_NT[rows],
            "positions": self._positions_NT[rows],
            "weights": self._weights_N[rows],
            "seen": self._seen,
            "oldest": self._oldest,
            "capacity": self._config.capacity,
            "draws": self._draws.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state.

        The capacity may have changed: a larger one fills up with what comes, and into a smaller
        one go the newest blocks.
        """
        capacity, saved = self._config.capacity, len(state["ids"])
        self._kept = min(saved, capacity)
        self._seen = state["seen"]
        self._oldest = state["oldest"]
        order = np.arange(saved)
        if state["capacity"] != capacity:
            order = np.roll(order, -self._oldest)[saved - self._kept :]
            self._oldest = 0
        size = state["ids"].shape[1]
        self._grow(max(self._kept, min(_FIRST_ROWS, capacity)), size, copy=False)
        rows = slice(0, self._kept)
        self._ids_NT[rows] = state["ids"][order]
        self._learned_NT[rows] = state["learned"][order]
        self._positions_NT[rows] = state["positions"][order]
        self._weights_N[rows] = state["weights"][order]
        self._draws.load_state_dict(state["draws"])
        self._weighed = False

    def _place(self) -> int | None:
        """Where the next block goes; None: nowhere."""
        capacity = self._config.capacity
        if self._kept < capacity:
            return self._kept
        if not capacity:
            return None
        if self._config.eviction == "oldest":
            return self._oldest
        chosen = int(self._draws.random.integers(self._seen + 1))
        return chosen if chosen < capacity else None

    def _weight(self, place: int) -> float:
        if self._power_V is None:
            return 1.0
        row = slice(place, place + 1)
        return float(example_weights(self._ids_NT[row], self._learned_NT[row], self._power_V)[0])

    def _block(self, index: int) -> Block:
        ids_T = self._ids_NT[index].copy()
        labels_T = np.where(self._learned_NT[index], ids_T, np.int32(IGNORED))
        return Block(ids_T, labels_T, self._positions_NT[index].copy())

    def _grow(self, rows: int, block_size: int, *, copy: bool = True) -> None:
        old = self._ids_NT, self._learned_NT, self._positions_NT, self._weights_N
        self._ids_NT = np.zeros((rows, block_size), np.int32)
        self._learned_NT = np.zeros((rows, block_size), np.bool_)
        self._positions_NT = np.zeros((rows, block_size), np.int32)
        self._weights_N = np.zeros(rows)
        if copy and self._kept:
            kept = slice(0, self._kept)
            self._ids_NT[kept], self._learned_NT[kept] = old[0][kept], old[1][kept]
            self._positions_NT[kept], self._weights_N[kept] = old[2][kept], old[3][kept]
