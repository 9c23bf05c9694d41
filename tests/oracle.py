"""The reference that exactness is held against: plain sums over records, nothing clever.

Shape legend: H horizons, V vocabulary.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from streamfreq.records import FloatArray


def recount(
    records: Iterable[tuple[Sequence[int], int]],
    half_lives_seconds: Sequence[float],
    as_of_ms: int,
    vocab_size: int,
) -> tuple[FloatArray, FloatArray]:
    """Counts and document counts (H, V) of (ids, event time in ms), as exactly rounded sums."""
    times_by_id: dict[int, list[int]] = defaultdict(list)
    documents_by_id: dict[int, list[int]] = defaultdict(list)
    for ids, time_ms in records:
        for token_id in ids:
            times_by_id[token_id].append(time_ms)
        for token_id in set(ids):
            documents_by_id[token_id].append(time_ms)
    counts_HV = np.zeros((len(half_lives_seconds), vocab_size))
    documents_HV = np.zeros_like(counts_HV)
    for table_HV, times in ((counts_HV, times_by_id), (documents_HV, documents_by_id)):
        for token_id, moments in times.items():
            for h, half_life in enumerate(half_lives_seconds):
                table_HV[h, token_id] = _decayed(moments, half_life, as_of_ms)
    return counts_HV, documents_HV


def _decayed(times_ms: list[int], half_life_seconds: float, as_of_ms: int) -> float:
    if math.isinf(half_life_seconds):
        return float(len(times_ms))
    return math.fsum(
        2.0 ** (-(as_of_ms - time_ms) / (half_life_seconds * 1000)) for time_ms in times_ms
    )


def assert_close(actual: FloatArray, expected: FloatArray) -> None:
    """Equal to 1e-9 relative, down to where float64 itself ends."""
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-280)
