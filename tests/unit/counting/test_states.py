from __future__ import annotations

import math

import numpy as np
import pytest

from streamfreq.codec import DecayedState
from streamfreq.counting import Counters, decay_to, merge
from streamfreq.errors import CheckpointRefused, UsageError
from tests.unit.counting.reference import NOW_MS, YEAR, Record, count

HOUR = (3600.0,)


def test_merging_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no states"):
        merge([])


def test_merge_names_both_half_lives() -> None:
    states = [
        DecayedState.zeros(half_lives, 4, documents=True) for half_lives in (HOUR, (60.0, math.inf))
    ]
    with pytest.raises(CheckpointRefused, match="half-lives 1h and counts with half-lives 1m, inf"):
        merge(states)


def test_merge_names_both_vocabulary_sizes() -> None:
    states = [DecayedState.zeros(HOUR, V, documents=True) for V in (4, 5)]
    with pytest.raises(CheckpointRefused, match="over 4 and over 5 token ids"):
        merge(states)


def test_merge_needs_documents_in_all_or_none() -> None:
    states = [DecayedState.zeros(HOUR, 4, documents=documents) for documents in (True, False)]
    with pytest.raises(CheckpointRefused, match="with and without document counts"):
        merge(states)
    assert merge([states[1], states[1]]).documents_HV is None


def test_merge_aligns_landmarks_that_are_ages_apart() -> None:
    old = count(Counters((1.0,), 2), [Record(NOW_MS, [0])]).state()
    new = count(Counters((1.0,), 2), [Record(NOW_MS + 5_000_000, [1])]).state()
    merged = merge([old, new])
    assert decay_to(merged, NOW_MS + 5_000_000).counts_HV.tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("half_life", [0.001, 1.0, 86_400.0, 10 * YEAR])
def test_idle_for_two_thousand_half_lives(half_life: float) -> None:
    counters = count(Counters((half_life, math.inf), 2), [Record(NOW_MS, [0] * 100)])
    state = counters.state()
    for half_lives in (2_000, 10**6, 10**12):
        idle = decay_to(state, NOW_MS + int(half_lives * half_life * 1000))
        assert idle.counts_HV.tolist() == [[0.0, 0.0], [100.0, 0.0]]
        assert idle.documents_HV is not None
        assert idle.documents_HV.tolist() == [[0.0, 0.0], [1.0, 0.0]]
        assert idle.tokens_H.tolist() == [0.0, 100.0]
        assert idle.records_H.tolist() == [0.0, 1.0]


def test_before_the_watermark_counts_are_larger() -> None:
    state = count(Counters((1.0,), 2), [Record(NOW_MS, [0])]).state()
    earlier = decay_to(state, NOW_MS - 10_000)
    assert earlier.counts_HV[0, 0] == 1024.0


def test_so_long_before_the_watermark_that_nothing_can_hold_it() -> None:
    state = count(Counters((3600.0, 1.0), 2), [Record(NOW_MS, [0])]).state()
    with pytest.raises(UsageError, match="half-lives of 1s before the latest record"):
        decay_to(state, NOW_MS - 2_000_000)


def test_nothing_counted_is_zero_at_any_time() -> None:
    state = DecayedState.zeros((1.0, math.inf), 3, documents=False)
    for as_of_ms in (0, NOW_MS, 10**20):
        counts = decay_to(state, as_of_ms)
        assert not np.any(counts.counts_HV)
        assert counts.documents_HV is None
