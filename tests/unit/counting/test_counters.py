from __future__ import annotations

import math

import numpy as np
import pytest

from streamfreq.codec import DecayedState
from streamfreq.counting import MAX_TIME_MS, Counters, decay_to, merge
from streamfreq.errors import CheckpointRefused, ConfigError, StreamfreqError
from streamfreq.records import TokenBatch
from tests.unit.counting.reference import (
    DEVICES,
    NOW_MS,
    YEAR,
    Record,
    assert_counts_agree,
    assert_same_state,
    batch_of,
    count,
    reference_counts,
)

pytestmark = pytest.mark.parametrize("device", DEVICES)

HORIZONS = (60.0, 3600.0, math.inf)


def test_an_empty_batch_changes_nothing(device: str) -> None:
    counters = Counters(HORIZONS, 10, device=device)
    counters.update(TokenBatch.empty(), np.empty(0, np.int64))
    assert counters.watermark_ms == -1
    assert_same_state(counters.state(), DecayedState.zeros(HORIZONS, 10, documents=True))


def test_a_record_without_tokens_is_a_record(device: str) -> None:
    counters = count(Counters(HORIZONS, 10, device=device), [Record(NOW_MS, [])] * 3)
    now = decay_to(counters.state(), NOW_MS)
    np.testing.assert_allclose(now.records_H, 3.0, rtol=1e-12)
    assert not now.tokens_H.any()
    assert not now.counts_HV.any()


@pytest.mark.parametrize(
    ("V", "R"), [(1, 300), (2, 300), (5, 1), (1000, 300), (131_072, 300), (2**20, 5_000)]
)
def test_documents_are_distinct_records(device: str, V: int, R: int) -> None:
    rng = np.random.default_rng(V)
    ids = [rng.integers(0, min(V, 9), size) * (V // min(V, 9)) for size in rng.integers(0, 40, R)]
    records = [Record(NOW_MS, row.tolist()) for row in ids]
    counters = count(Counters((math.inf,), V, device=device), records)
    state = counters.state()
    assert state.documents_HV is not None
    wanted = np.zeros(V)
    for record in records:
        wanted[list(set(record.ids))] += 1
    np.testing.assert_array_equal(state.documents_HV[0], wanted)
    np.testing.assert_array_equal(state.counts_HV[0], np.bincount(np.concatenate(ids), minlength=V))
    assert state.records_H[0] == R
    assert state.tokens_H[0] == sum(len(record.ids) for record in records)


def test_without_documents_the_counts_are_the_same(device: str) -> None:
    rng = np.random.default_rng(0)
    records = [
        Record(NOW_MS + int(t), rng.integers(0, 50, 30).tolist())
        for t in rng.integers(0, 10**8, 40)
    ]
    with_documents = count(Counters(HORIZONS, 50, device=device), records).state()
    without = count(Counters(HORIZONS, 50, documents=False, device=device), records).state()
    assert without.documents_HV is None
    np.testing.assert_allclose(without.counts_HV, with_documents.counts_HV, rtol=1e-12)


@pytest.mark.parametrize("half_life", [0.001, 1.0, 86_400.0, 10 * YEAR])
def test_a_late_record_has_exactly_its_smaller_weight(device: str, half_life: float) -> None:
    start_ms = round(half_life * 4_000)
    late_ms = start_ms - round(half_life * 3_000)
    counters = Counters((half_life,), 3, device=device)
    count(counters, [Record(start_ms, [0])])
    count(counters, [Record(late_ms, [1])])
    assert decay_to(counters.state(), start_ms).counts_HV.tolist() == [[1.0, 0.125, 0.0]]
    assert counters.watermark_ms == start_ms


@pytest.mark.parametrize("half_life", [0.001, 1.0, 300.0])
@pytest.mark.parametrize("half_lives_on", [1, 128, 129, 1_000, 1_100, 2_000, 10_000])
def test_a_landmark_moves_by_an_exact_power_of_two(
    device: str, half_life: float, half_lives_on: int
) -> None:
    rng = np.random.default_rng(1)
    step_ms = round(half_life * 1000)
    start_ms = NOW_MS // step_ms * step_ms
    records = [
        Record(start_ms + int(rng.integers(0, 50 * step_ms)), [int(token)])
        for token in rng.integers(0, 20, 200)
    ]
    counters = count(Counters((half_life,), 20, device=device), records)
    before = counters.state()
    count(counters, [Record(start_ms + half_lives_on * step_ms, [])])
    after = counters.state()
    moved = int(after.landmarks_H[0] - before.landmarks_H[0])
    assert moved == 0 or moved == start_ms // step_ms + half_lives_on - before.landmarks_H[0]
    assert (moved > 0) == (start_ms // step_ms + half_lives_on - before.landmarks_H[0] > 128)
    np.testing.assert_array_equal(after.counts_HV, np.ldexp(before.counts_HV, -moved))
    np.testing.assert_array_equal(after.tokens_H, np.ldexp(before.tokens_H, -moved))
    assert before.documents_HV is not None
    np.testing.assert_array_equal(after.documents_HV, np.ldexp(before.documents_HV, -moved))


def test_a_move_beyond_the_smallest_power_of_two_keeps_what_float64_can_hold(device: str) -> None:
    """2^-1150 is 0 in float64, yet 2^128 times 2^-1150 is not."""
    counters = Counters((1.0,), 2, device=device)
    for half_lives_on in (0, 128, 1_150):
        count(counters, [Record((1_000 + half_lives_on) * 1000, [0 if half_lives_on < 150 else 1])])
    state = counters.state()
    assert state.landmarks_H.tolist() == [2_150]
    assert state.counts_HV.tolist() == [[2.0**-1022, 1.0]]


def test_only_the_rows_that_need_it_are_rescaled(device: str) -> None:
    counters = count(Counters((1.0, 3600.0), 2, device=device), [Record(NOW_MS, [0])])
    before = counters.state()
    count(counters, [Record(NOW_MS + 600_000, [1])])
    after = counters.state()
    assert after.landmarks_H[0] == before.landmarks_H[0] + 600
    assert after.landmarks_H[1] == before.landmarks_H[1]
    assert after.counts_HV[1, 0] == before.counts_HV[1, 0]


def test_two_thousand_half_lives_with_tokens_all_along(device: str) -> None:
    half_lives = (1.0, 60.0, math.inf)
    counters = Counters(half_lives, 3, device=device)
    records = [Record(NOW_MS + 37 * step * 10, [step % 3, 0]) for step in range(6_000)]
    for first in range(0, len(records), 500):
        count(counters, records[first : first + 500])
    assert counters.watermark_ms - NOW_MS > 2_000_000
    for as_of_ms in (counters.watermark_ms, counters.watermark_ms + 700):
        assert_counts_agree(
            decay_to(counters.state(), as_of_ms),
            reference_counts(records, half_lives, 3, as_of_ms),
        )


def test_counting_goes_on_after_an_idle_age(device: str) -> None:
    counters = count(Counters((1.0,), 2, device=device), [Record(NOW_MS, [0] * 1000)])
    later_ms = NOW_MS + 2_000_000
    idle = decay_to(counters.state(), later_ms)
    assert idle.counts_HV.tolist() == [[0.0, 0.0]]
    assert idle.tokens_H.tolist() == [0.0]
    count(counters, [Record(later_ms, [1])])
    assert decay_to(counters.state(), later_ms).counts_HV.tolist() == [[0.0, 1.0]]


SECONDS = 25
"""Length of a batch in event time; 40,000 tokens a second, all of them id 1."""


def busy_second_by_second(counters: Counters, batches: int) -> DecayedState:
    tokens = TokenBatch(np.full(40_000 * SECONDS, 1, np.int32), np.full(SECONDS, 40_000, np.int64))
    times_R = NOW_MS + 1000 * np.arange(SECONDS)
    for batch in range(batches):
        counters.update(tokens, times_R + 1000 * SECONDS * batch)
    return counters.state()


@pytest.mark.slow
def test_a_thousand_million_updates_of_one_token(device: str) -> None:
    """float32 would stop at 2^24."""
    state = busy_second_by_second(
        Counters((math.inf,), 3, documents=False, device=device), batches=1_000
    )
    assert state.counts_HV.tolist() == [[0.0, 1e9, 0.0]]
    assert state.tokens_H.tolist() == [1e9]


def test_a_busy_token_in_a_decayed_row(device: str) -> None:
    batches, half_life = 150, 3600.0
    state = busy_second_by_second(
        Counters((half_life,), 3, documents=False, device=device), batches
    )
    ratio = 2.0 ** (-1 / half_life)
    wanted = 40_000 * (1 - ratio ** (batches * SECONDS)) / (1 - ratio)
    assert wanted > 2**26
    found = decay_to(state, state.watermark_ms).counts_HV[0, 1]
    assert found == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("reached", [2**24, 2**31, 2**32, 2**52])
def test_plain_counts_pass_the_limits_of_narrow_types(device: str, reached: int) -> None:
    state = DecayedState.zeros((math.inf,), 2, documents=True)
    state.counts_HV[0, 0] = state.tokens_H[0] = reached - 2
    counters = Counters.from_state(state, device=device)
    for _ in range(5):
        count(counters, [Record(NOW_MS, [0])])
    assert counters.state().counts_HV[0, 0] == reached + 3


def test_plain_counts_end_where_they_would_be_inexact(device: str) -> None:
    state = DecayedState.zeros((math.inf,), 2, documents=True)
    state.counts_HV[0, 0] = state.tokens_H[0] = 2**53 - 1
    counters = Counters.from_state(state, device=device)
    count(counters, [Record(NOW_MS, [0])])
    before = counters.state()
    assert before.counts_HV[0, 0] == 2**53
    with pytest.raises(StreamfreqError, match=r"beyond 2\^53"):
        count(counters, [Record(NOW_MS + 1, [0])])
    assert_same_state(counters.state(), before)


@pytest.mark.parametrize("bad", [10, 2**31 - 1, -1, -(2**31)])
def test_an_id_outside_the_vocabulary_changes_nothing(device: str, bad: int) -> None:
    counters = count(Counters(HORIZONS, 10, device=device), [Record(NOW_MS, [0, 9])])
    before = counters.state()
    records = [Record(NOW_MS + 10**9, [1, 2]), Record(NOW_MS, [3, bad])]
    with pytest.raises(StreamfreqError, match=rf"token id {bad} is not in \[0, 10\)") as caught:
        count(counters, records)
    assert "tokenizer does not fit" in str(caught.value)
    assert_same_state(counters.state(), before)


@pytest.mark.parametrize("time_ms", [-1, MAX_TIME_MS + 1, 2**63 - 1])
def test_a_time_that_was_not_resolved_changes_nothing(device: str, time_ms: int) -> None:
    counters = count(Counters(HORIZONS, 10, device=device), [Record(NOW_MS, [0])])
    before = counters.state()
    with pytest.raises(ValueError, match="resolve them first"):
        count(counters, [Record(NOW_MS, [1]), Record(time_ms, [1])])
    assert_same_state(counters.state(), before)


def test_a_batch_that_contradicts_itself_changes_nothing(device: str) -> None:
    counters = Counters(HORIZONS, 10, device=device, ids_per_token=2)
    tokens, times = batch_of([Record(NOW_MS, [1, 2])])
    with pytest.raises(ValueError, match="1 records but 2 event times"):
        counters.update(tokens, np.repeat(times, 2))
    with pytest.raises(ValueError, match="negative"):
        counters.update(TokenBatch(np.array([1], np.int32), np.array([2, -1])), np.repeat(times, 2))
    with pytest.raises(ValueError, match="no multiple of 2"):
        count(counters, [Record(NOW_MS, [1, 2, 3])])
    assert counters.watermark_ms == -1
    assert not counters.state().counts_HV.any()


def test_the_ends_of_time(device: str) -> None:
    half_lives = (0.001, 10 * YEAR, math.inf)
    records = [Record(0, [0]), Record(MAX_TIME_MS, [1])]
    counters = count(Counters(half_lives, 2, device=device), records)
    assert_counts_agree(
        decay_to(counters.state(), MAX_TIME_MS),
        reference_counts(records, half_lives, 2, MAX_TIME_MS),
    )


def test_count_min_counts_tokens_not_ids(device: str) -> None:
    counters = Counters((math.inf,), 8, device=device, ids_per_token=2)
    count(counters, [Record(NOW_MS, [1, 5, 1, 5, 2, 6]), Record(NOW_MS, [])])
    state = counters.state()
    assert state.tokens_H.tolist() == [3.0]
    assert state.counts_HV[0, [1, 5, 2, 6]].tolist() == [2.0, 2.0, 1.0, 1.0]
    assert state.documents_HV is not None
    assert state.documents_HV[0, [1, 5, 2, 6]].tolist() == [1.0, 1.0, 1.0, 1.0]


def test_states_are_copies(device: str) -> None:
    counters = count(Counters(HORIZONS, 4, device=device), [Record(NOW_MS, [1])])
    state = counters.state()
    again = Counters.from_state(state, device=device)
    count(counters, [Record(NOW_MS, [1, 2])])
    count(again, [Record(NOW_MS, [3])])
    assert state.counts_HV[2].tolist() == [0.0, 1.0, 0.0, 0.0]
    assert state.tokens_H[2] == 1.0
    merged = merge([state])
    merged.counts_HV[:] = 5.0
    assert state.counts_HV[2, 0] == 0.0


def test_the_callers_arrays_stay_as_they_are(device: str) -> None:
    for documents in (True, False):
        ids, lengths = np.array([3, 1, 3], np.int32), np.array([3])
        times = np.array([NOW_MS])
        for array in (ids, lengths, times):
            array.flags.writeable = False
        counters = Counters(HORIZONS, 4, documents=documents, device=device)
        counters.update(TokenBatch(ids, lengths), times)
        assert ids.tolist() == [3, 1, 3]
        assert counters.state().counts_HV[2].tolist() == [0.0, 1.0, 0.0, 2.0]


def test_a_damaged_state_is_refused(device: str) -> None:
    state = DecayedState.zeros((60.0, math.inf), 4, documents=True)
    wrong = DecayedState(
        (60.0,),
        state.landmarks_H,
        state.counts_HV,
        state.documents_HV,
        state.tokens_H,
        state.records_H,
        -1,
    )
    with pytest.raises(CheckpointRefused, match="count again"):
        Counters.from_state(wrong, device=device)


@pytest.mark.parametrize("half_life", [1e-10, 1e12])
def test_half_lives_have_bounds(device: str, half_life: float) -> None:
    with pytest.raises(ConfigError, match="from 1 ns to 292 years"):
        Counters((half_life,), 4, device=device)
