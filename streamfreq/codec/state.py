"""The numbers that counting keeps, as plain arrays on the host.

Shape legend: H horizons, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamfreq.records import FloatArray, Int64Array, TopicPartition

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
