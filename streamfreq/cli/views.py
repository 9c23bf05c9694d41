"""What people want to know of a snapshot, as numbers: heaviest and rising tokens, changes, weights.

Shape legend: H horizons, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamfreq.codec import Snapshot
from streamfreq.errors import SnapshotRefused, UsageError
from streamfreq.records import FloatArray, Int64Array
from streamfreq.weighting import schemes
from streamfreq.weighting.horizons import horizon_row

TokenText = Callable[[int], str | None]
"""The text of an id; None when nobody here knows it."""

NOISE = 1e-3
"""A ratio nearer to 1 than this is no change: half-lives that hold the same records differ less."""

SHRINKAGE_TOKENS = 5.0
"""Pseudo-count that both sides of a rising ratio get, so that rare tokens do not jump."""


@dataclass(frozen=True, slots=True)
class Row:
    """One token of one horizon; `rate` is tokens a second, `before` its rank elsewhere."""

    rank: int
    token_id: int
    token: str | None
    count: float
    share: float
    rate: float | None
    before: int | None
    ratio: float | None
    weights: dict[str, float]


@dataclass(frozen=True, slots=True)
class Change:
    """One token in two snapshots; `ratio` compares its shares, B against A, with shrinkage."""

    token_id: int
    token: str | None
    ratio: float
    count_a: float
    count_b: float
    share_a: float
    share_b: float
    rank_a: int | None
    rank_b: int | None


def rate_per_second(count: float, half_life_seconds: float) -> float | None:
    """The rate that keeps a decayed count where it is; None for the half-life inf.

    A steady rate r of arrivals at half-life h holds the count at the integral of
    r * 2^(-a/h) over the ages a, which is r * h / ln 2; so r = count * ln 2 / h. (Exponential
    decay as in Cormode, Shkapenyuk, Srivastava, Xu: "Forward Decay", ICDE 2009, section III.)
    """
    if math.isinf(half_life_seconds):
        return None
    return count * math.log(2) / half_life_seconds


def horizon_index(half_lives_seconds: tuple[float, ...], wanted: str) -> int:
    """The row of a horizon: shortest, longest, or a half-life such as 1h; raises ConfigError."""
    return horizon_row(wanted, half_lives_seconds, "--horizon")


def one_id_per_name(snapshot: Snapshot) -> Snapshot:
    """The snapshot with one id for each labelled word, where several rows count it (count-min).

    The least of the counts is the estimate (Cormode, Muthukrishnan 2005); the other ids show 0.
    """
    ids_by_name: dict[str, list[int]] = {}
    for token_id, name in snapshot.labels.items():
        ids_by_name.setdefault(name, []).append(token_id)
    repeated = [sorted(ids) for ids in ids_by_name.values() if len(ids) > 1]
    if not repeated:
        return snapshot
    counts_HV = snapshot.counts_HV.copy()
    for first, *others in repeated:
        counts_HV[:, first] = counts_HV[:, [first, *others]].min(axis=1)
        counts_HV[:, others] = 0.0
    return replace(snapshot, counts_HV=counts_HV)


def order(values_V: FloatArray, present_V: Any, top: int) -> Int64Array:
    """The ids of the `top` largest values among those present; equal values by id."""
    ids = np.flatnonzero(present_V)
    if len(ids) > top > 0:
        # Sorting a whole vocabulary for twenty rows would be waste.
        threshold = np.partition(values_V[ids], len(ids) - top)[len(ids) - top]
        ids = ids[values_V[ids] >= threshold]
    return ids[np.lexsort((ids, -values_V[ids]))][:top].astype(np.int64)


def ranks(counts_V: FloatArray, ids: Sequence[int] | Int64Array) -> list[int | None]:
    """The rank of each id, 1 for the heaviest; equal counts share the best; None when absent."""
    ascending = np.sort(counts_V[counts_V > 0])
    found = len(ascending) - np.searchsorted(ascending, counts_V[np.asarray(ids)], side="right") + 1
    return [
        int(rank) if counts_V[token_id] > 0 else None
        for rank, token_id in zip(found, ids, strict=True)
    ]


def rising_ratio(
    now_V: FloatArray, now_tokens: float, then_V: FloatArray, then_tokens: float
) -> FloatArray:
    """How many times as often each token comes now as its long share lets expect.

    The ratio of the emergence weights: few sightings stay near 1.
    """
    then_p_V = then_V / then_tokens if then_tokens > 0 else np.zeros_like(then_V)
    return schemes.emergence(now_V, then_p_V, now_tokens, SHRINKAGE_TOKENS)


def top_rows(
    snapshot: Snapshot, horizon: int, top: int, text: TokenText, *, rising: bool = False
) -> list[Row]:
    """The heaviest tokens of a horizon, or those that rise most against the longest one."""
    snapshot = one_id_per_name(snapshot)
    longest = horizon_index(snapshot.half_lives_seconds, "longest")
    counts_V = snapshot.counts_HV[horizon]
    ratio_V = rising_ratio(
        counts_V,
        float(snapshot.tokens_H[horizon]),
        snapshot.counts_HV[longest],
        float(snapshot.tokens_H[longest]),
    )
    if rising and horizon == longest:
        raise UsageError(
            "--rising compares a shorter horizon with the longest: this snapshot or --horizon "
            "leaves none"
        )
    present_V = (counts_V > 0) & ((ratio_V > 1 + NOISE) | (not rising))
    ids = order(ratio_V if rising else counts_V, present_V, top)
    here = ranks(counts_V, ids)
    before = ranks(snapshot.counts_HV[longest], ids)
    total = float(snapshot.tokens_H[horizon])
    half_life = snapshot.half_lives_seconds[horizon]
    return [
        Row(
            rank=here[position] or position + 1,
            token_id=int(token_id),
            token=text(int(token_id)),
            count=float(counts_V[token_id]),
            share=float(counts_V[token_id]) / total if total > 0 else 0.0,
            rate=rate_per_second(float(counts_V[token_id]), half_life),
            before=None if horizon == longest else before[position],
            ratio=None if horizon == longest else float(ratio_V[token_id]),
            weights={
                name: float(weights_V[token_id]) for name, weights_V in snapshot.weights.items()
            },
        )
        for position, token_id in enumerate(ids)
    ]


def changes(
    a: Snapshot, b: Snapshot, wanted: str, top: int, text: TokenText
) -> tuple[list[Change], list[Change]]:
    """The tokens that rose most and those that fell most from `a` to `b`, in one horizon.

    Raises SnapshotRefused when the tokenizers differ, UsageError when a horizon is missing.
    """
    if a.tokenizer_fingerprint != b.tokenizer_fingerprint:
        raise SnapshotRefused(
            f"the snapshots come from different tokenizers ({a.tokenizer_name} "
            f"{a.tokenizer_fingerprint[:12]}, {b.tokenizer_name} {b.tokenizer_fingerprint[:12]}): "
            "their ids mean different tokens"
        )
    a, b = one_id_per_name(a), one_id_per_name(b)
    row_b = horizon_index(b.half_lives_seconds, wanted)
    row_a = horizon_index(a.half_lives_seconds, repr(b.half_lives_seconds[row_b]))
    counts_a, counts_b = a.counts_HV[row_a], b.counts_HV[row_b]
    total_a, total_b = float(a.tokens_H[row_a]), float(b.tokens_H[row_b])
    ratio_V = rising_ratio(counts_b, total_b, counts_a, total_a)
    present_V = (counts_a > 0) | (counts_b > 0)

    def described(ids: Int64Array) -> list[Change]:
        return [
            Change(
                token_id=int(token_id),
                token=text(int(token_id)),
                ratio=float(ratio_V[token_id]),
                count_a=float(counts_a[token_id]),
                count_b=float(counts_b[token_id]),
                share_a=float(counts_a[token_id]) / total_a if total_a > 0 else 0.0,
                share_b=float(counts_b[token_id]) / total_b if total_b > 0 else 0.0,
                rank_a=rank_a,
                rank_b=rank_b,
            )
            for token_id, rank_a, rank_b in zip(
                ids, ranks(counts_a, ids), ranks(counts_b, ids), strict=True
            )
        ]

    risen = order(ratio_V, present_V & (ratio_V > 1 + NOISE), top)
    fallen = order(-ratio_V, present_V & (ratio_V < 1 - NOISE), top)
    return described(risen), described(fallen)


def weight_summary(snapshot: Snapshot) -> dict[str, dict[str, float]]:
    """Of each weights tensor: its range, its mean over the stream, the effective sample share.

    mean: the expected weight of a token drawn by the longest horizon (1 when well scaled).
    effective: (sum p w)^2 / sum p w^2 (Kish), the share of draws that an equally weighted sample
    of the same precision would need.
    """
    longest = horizon_index(snapshot.half_lives_seconds, "longest")
    counts_V = snapshot.counts_HV[longest]
    total = float(counts_V.sum())
    summary = {}
    for name, weights_V in snapshot.weights.items():
        wide_V = weights_V.astype(np.float64)
        mean = float(counts_V @ wide_V) / total if total > 0 else 1.0
        square = float(counts_V @ wide_V**2) / total if total > 0 else 1.0
        summary[name] = {
            "min": float(wide_V.min()),
            "mean": mean,
            "max": float(wide_V.max()),
            "effective": mean**2 / square if square > 0 else 1.0,
        }
    return summary
