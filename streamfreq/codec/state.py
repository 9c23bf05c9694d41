"""The numbers that counting keeps, as plain arrays on the host.

Shape legend: H horizons, V vocabulary, U rows (token ids) that are written down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamfreq.records import FloatArray, Int32Array, Int64Array, TopicPartition

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets `first` (inclusive) to `last` (exclusive) that are not counted.

    Either counting began at `last`, or the broker no longer had them when their turn came.
    """

    partition: TopicPartition
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class DecayedState:
    """Decayed sums, each row relative to its landmark.

    Row h counts with half-life `half_lives_seconds[h]` (inf: plain counts). A stored value A
    stands for the decayed count A * 2^-((T - L) / half_life) at time T, where the landmark is
    L = landmarks_H[h] * half_life since the epoch (0 for inf, where the value is the count).

    counts_HV: token counts. documents_HV: records that hold the token (None: not kept).
    tokens_H, records_H: totals. watermark_ms: the latest event time counted; -1: none yet.
    """

    half_lives_seconds: tuple[float, ...]
    landmarks_H: Int64Array
    counts_HV: FloatArray
    documents_HV: FloatArray | None
    tokens_H: FloatArray
    records_H: FloatArray
    watermark_ms: int

    @property
    def vocab_size(self) -> int:
        """V."""
        return int(self.counts_HV.shape[1])

    @staticmethod
    def zeros(
        half_lives_seconds: tuple[float, ...], vocab_size: int, *, documents: bool
    ) -> DecayedState:
        """Nothing counted yet."""
        H = len(half_lives_seconds)
        return DecayedState(
            half_lives_seconds,
            np.zeros(H, np.int64),
            np.zeros((H, vocab_size)),
            np.zeros((H, vocab_size)) if documents else None,
            np.zeros(H),
            np.zeros(H),
            -1,
        )


@dataclass(frozen=True, slots=True, eq=False)
class StateChanges:
    """Some rows of a DecayedState with their values, and all of it that is not rows.

    `rows_U` are the ids, ascending. whole: every other row is zero, so that this is the whole
    state; else every other row is as it was before. Values are absolute, never differences: to
    write a row twice, or one that did not change, is harmless.
    """

    half_lives_seconds: tuple[float, ...]
    vocab_size: int
    whole: bool
    landmarks_H: Int64Array
    rows_U: Int32Array
    counts_HU: FloatArray
    documents_HU: FloatArray | None
    tokens_H: FloatArray
    records_H: FloatArray
    watermark_ms: int

    @staticmethod
    def all_of(state: DecayedState) -> StateChanges:
        """The whole state as its rows that hold anything."""
        used_V = state.counts_HV.any(axis=0)
        if state.documents_HV is not None:
            used_V |= state.documents_HV.any(axis=0)
        rows_U = np.flatnonzero(used_V).astype(np.int32)
        return StateChanges(
            state.half_lives_seconds,
            state.vocab_size,
            True,
            state.landmarks_H,
            rows_U,
            state.counts_HV[:, rows_U],
            None if state.documents_HV is None else state.documents_HV[:, rows_U],
            state.tokens_H,
            state.records_H,
            state.watermark_ms,
        )

    def applied_to(self, before: DecayedState | None) -> DecayedState:
        """The state after these changes; `before`, whose arrays are taken over, when not whole.

        Raises ValueError when the rows don't fit `before`, or it is missing.
        """
        H, V = len(self.half_lives_seconds), self.vocab_size
        if self.whole:
            before = DecayedState.zeros(
                self.half_lives_seconds, V, documents=self.documents_HU is not None
            )
        elif before is None:
            raise ValueError("changes without the state before them")
        fits = (
            before.counts_HV.shape == (H, V)
            and before.half_lives_seconds == self.half_lives_seconds
            and (before.documents_HV is None) == (self.documents_HU is None)
        )
        if not fits:
            raise ValueError("changes of a state of another shape")
        before.counts_HV[:, self.rows_U] = self.counts_HU
        if before.documents_HV is not None and self.documents_HU is not None:
            before.documents_HV[:, self.rows_U] = self.documents_HU
        return DecayedState(
            self.half_lives_seconds,
            self.landmarks_H,
            before.counts_HV,
            before.documents_HV,
            self.tokens_H,
            self.records_H,
            self.watermark_ms,
        )


def check_shapes(expected: Mapping[str, tuple[Array | None, tuple[int, ...]]]) -> None:
    """Raises ValueError that names the first array whose shape is not the expected one."""
    for name, (array, shape) in expected.items():
        if array is not None and array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape} in place of {shape}")


def half_lives_to_json(half_lives_seconds: tuple[float, ...]) -> list[float | str]:
    """Numbers, and the word "inf", since JSON has no infinity."""
    return ["inf" if math.isinf(seconds) else seconds for seconds in half_lives_seconds]


def half_lives_from_json(values: list[float | str]) -> tuple[float, ...]:
    """The inverse of `half_lives_to_json`."""
    return tuple(float(value) for value in values)


def gaps_to_json(gaps: tuple[Gap, ...]) -> list[list[str | int]]:
    """Each gap as [topic, partition, first, last]."""
    return [[gap.partition.topic, gap.partition.partition, gap.first, gap.last] for gap in gaps]


def gaps_from_json(values: list[list[str | int]]) -> tuple[Gap, ...]:
    """The inverse of `gaps_to_json`."""
    return tuple(
        Gap(TopicPartition(str(topic), int(partition)), int(first), int(last))
        for topic, partition, first, last in values
    )
