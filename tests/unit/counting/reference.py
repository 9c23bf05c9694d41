"""Decayed counts as the plain sum over records, added exactly: slow and obvious."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from streamfreq.codec import DecayedState
from streamfreq.counting import Counters, DecayedCounts
from streamfreq.records import TokenBatch

NOW_MS = 1_700_000_000_000
YEAR = 365.0 * 86_400
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


class Record(NamedTuple):
    time_ms: int
    ids: list[int]


def batch_of(records: Sequence[Record]) -> tuple[TokenBatch, np.ndarray]:
    ids = [token for record in records for token in record.ids]
    lengths = [len(record.ids) for record in records]
    times = np.array([record.time_ms for record in records], np.int64)
    return TokenBatch(np.array(ids, np.int32), np.array(lengths, np.int64)), times


def count(counters: Counters, records: Sequence[Record]) -> Counters:
    counters.update(*batch_of(records))
    return counters


def decayed(records: Sequence[Record], half_life: float, as_of_ms: int) -> list[float]:
    """The weight of each record at `as_of_ms`."""
    half_life_ns = round(half_life * 1e9) if math.isfinite(half_life) else math.inf
    return [
        2.0 ** (-((as_of_ms - record.time_ms) * 1_000_000) / half_life_ns) for record in records
    ]


def reference_counts(
    records: Sequence[Record], half_lives: tuple[float, ...], vocab_size: int, as_of_ms: int
) -> DecayedCounts:
    counts_HV = np.zeros((len(half_lives), vocab_size))
    documents_HV = np.zeros_like(counts_HV)
    tokens_H, records_H = np.zeros(len(half_lives)), np.zeros(len(half_lives))
    for h, half_life in enumerate(half_lives):
        weights = decayed(records, half_life, as_of_ms)
        pairs = list(zip(records, weights, strict=True))
        for token in {token for record in records for token in record.ids}:
            counts_HV[h, token] = math.fsum(w for r, w in pairs for i in r.ids if i == token)
            documents_HV[h, token] = math.fsum(w for r, w in pairs if token in set(r.ids))
        tokens_H[h] = math.fsum(w * len(r.ids) for r, w in pairs)
        records_H[h] = math.fsum(weights)
    return DecayedCounts(half_lives, as_of_ms, counts_HV, documents_HV, tokens_H, records_H)


def assert_counts_agree(actual: DecayedCounts, expected: DecayedCounts) -> None:
    """To 1e-9 relative; below 1e-300 float64 itself has fewer digits than that."""
    assert actual.half_lives_seconds == expected.half_lives_seconds
    for name in ("counts_HV", "documents_HV", "tokens_H", "records_H"):
        values, wanted = getattr(actual, name), getattr(expected, name)
        np.testing.assert_allclose(values, wanted, rtol=1e-9, atol=1e-300, err_msg=name)
        plain = np.isinf(actual.half_lives_seconds)
        np.testing.assert_array_equal(values[plain], wanted[plain], err_msg=name)


def assert_same_state(actual: DecayedState, expected: DecayedState) -> None:
    """Bit for bit."""
    assert actual.half_lives_seconds == expected.half_lives_seconds
    assert actual.watermark_ms == expected.watermark_ms
    for name in ("landmarks_H", "counts_HV", "documents_HV", "tokens_H", "records_H"):
        np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name), err_msg=name)
