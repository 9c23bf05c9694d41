"""Merging the states of several counters, and reading a state as counts at a moment.

Shape legend: H horizons, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamfreq.codec import DecayedState
from streamfreq.config import format_duration
from streamfreq.counting.decay import decay_factor, half_life_ns
from streamfreq.errors import CheckpointRefused, UsageError
from streamfreq.records import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class DecayedCounts:
    """Decayed counts at event time `as_of_ms`, one row per half-life."""

    half_lives_seconds: tuple[float, ...]
    as_of_ms: int
    counts_HV: FloatArray
    documents_HV: FloatArray | None
    tokens_H: FloatArray
    records_H: FloatArray


def merge(states: Sequence[DecayedState]) -> DecayedState:
    """The state of counters that had counted the records of all `states`.

    Commutative and associative up to float64 rounding, exact for inf rows: landmarks move to the
    latest of them, by exact powers of two, and the rest is addition. A state that counted nothing
    changes nothing. Raises CheckpointRefused when half-lives, vocabulary sizes or the keeping of
    document counts differ, ValueError when there is no state.
    """
    if not states:
        raise ValueError("merge: no states given; one at least is needed to know the shapes")
    first = states[0]
    for state in states[1:]:
        _require_same_kind(first, state)
    landmarks_H = np.max([state.landmarks_H for state in states], axis=0)
    merged = DecayedState.zeros(
        first.half_lives_seconds, first.vocab_size, documents=first.documents_HV is not None
    )
    merged.landmarks_H[:] = landmarks_H
    for state in states:
        shifts_H = state.landmarks_H - landmarks_H
        _add(merged.counts_HV, state.counts_HV, shifts_H)
        _add(merged.tokens_H, state.tokens_H, shifts_H)
        _add(merged.records_H, state.records_H, shifts_H)
        if merged.documents_HV is not None and state.documents_HV is not None:
            _add(merged.documents_HV, state.documents_HV, shifts_H)
    return DecayedState(
        merged.half_lives_seconds,
        merged.landmarks_H,
        merged.counts_HV,
        merged.documents_HV,
        merged.tokens_H,
        merged.records_H,
        max(state.watermark_ms for state in states),
    )


def decay_to(state: DecayedState, as_of_ms: int) -> DecayedCounts:
    """The counts at event time `as_of_ms`, which may be any time.

    Long after the watermark they are 0, never NaN. Before it they are larger than at the
    watermark, each record by its own factor; so long before it that float64 has no such number
    raises UsageError.
    """
    factors = [
        decay_factor(as_of_ms, half_life_ns(seconds), int(landmark))
        for seconds, landmark in zip(state.half_lives_seconds, state.landmarks_H, strict=True)
    ]
    counts = DecayedCounts(
        state.half_lives_seconds,
        as_of_ms,
        _scaled(state.counts_HV, factors),
        None if state.documents_HV is None else _scaled(state.documents_HV, factors),
        _scaled(state.tokens_H, factors),
        _scaled(state.records_H, factors),
    )
    finite_H = np.isfinite(counts.counts_HV).all(axis=1)
    finite_H &= np.isfinite(counts.tokens_H) & np.isfinite(counts.records_H)
    if not finite_H.all():
        shortest = format_duration(state.half_lives_seconds[int(np.argmin(finite_H))])
        raise UsageError(
            f"as_of {as_of_ms} ms lies too many half-lives of {shortest} before the latest record "
            f"({state.watermark_ms} ms): the counts exceed float64; give a later time"
        )
    return counts


def _scaled(values_H: FloatArray, factors: list[tuple[float, int]]) -> FloatArray:
    """Row h times factors[h], into a new array of the same shape, (H,) or (H, V)."""
    scaled_H = np.empty_like(values_H)
    with np.errstate(over="ignore", under="ignore"):
        for h, (mantissa, exponent) in enumerate(factors):
            scaled_H[h] = np.ldexp(values_H[h] * mantissa, exponent)
    return scaled_H


def _add(sums_H: FloatArray, values_H: FloatArray, shifts_H: np.ndarray) -> None:
    """Add row h of the values times 2^shifts_H[h] (none is above 0) to row h of the sums."""
    for h, shift in enumerate(shifts_H.tolist()):
        sums_H[h] += values_H[h] if shift == 0 else np.ldexp(values_H[h], max(shift, -3_000))


def _require_same_kind(one: DecayedState, other: DecayedState) -> None:
    if one.half_lives_seconds != other.half_lives_seconds:
        kinds = [
            ", ".join(format_duration(seconds) for seconds in state.half_lives_seconds)
            for state in (one, other)
        ]
        raise CheckpointRefused(
            f"can't merge counts with half-lives {kinds[0]} and counts with half-lives {kinds[1]}: "
            "use the same counting.half_lives in every worker, or another job"
        )
    if one.vocab_size != other.vocab_size:
        raise CheckpointRefused(
            f"can't merge counts over {one.vocab_size} and over {other.vocab_size} token ids: "
            "use the same tokenizer in every worker, or another job"
        )
    if (one.documents_HV is None) != (other.documents_HV is None):
        raise CheckpointRefused(
            "can't merge counts with and without document counts: "
            "use the same counting.documents in every worker, or another job"
        )
