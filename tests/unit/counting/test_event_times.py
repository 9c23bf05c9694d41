from __future__ import annotations

import math

import numpy as np
import pytest

from streamfreq.config import CountingConfig
from streamfreq.counting import MAX_TIME_MS, Counters, EventTimes, decay_to
from streamfreq.records import TokenBatch
from tests.unit.counting.reference import NOW_MS

YEAR_MS = 365 * 86_400_000


def resolve(config: CountingConfig, timestamps: list[int], watermark_ms: int = -1):
    return EventTimes(config).resolve(np.array(timestamps, np.int64), watermark_ms, NOW_MS)


def test_missing_timestamps_become_the_time_of_ingestion() -> None:
    resolved = resolve(CountingConfig(), [-1, -(2**63), NOW_MS - 5])
    assert resolved.times_ms_R.tolist() == [NOW_MS, NOW_MS, NOW_MS - 5]
    assert resolved.tallies == {"no_timestamp": 2, "future": 0, "late": 0}
    assert resolved.keep_R.all()


def test_the_future_is_clamped_to_the_permitted_skew() -> None:
    hour = 3_600_000
    timestamps = [NOW_MS + hour, NOW_MS + hour + 1, NOW_MS + YEAR_MS, 2**63 - 1]
    resolved = resolve(CountingConfig(), timestamps)
    assert resolved.times_ms_R.tolist() == [NOW_MS + hour] * 4
    assert resolved.tallies["future"] == 3


def test_a_year_ahead_does_not_wipe_out_the_present() -> None:
    resolved = resolve(CountingConfig(), [NOW_MS, NOW_MS + YEAR_MS])
    counters = Counters((3600.0,), 2)
    counters.update(TokenBatch(np.array([0, 1], np.int32), np.array([1, 1])), resolved.times_ms_R)
    counts_HV = decay_to(counters.state(), counters.watermark_ms).counts_HV
    np.testing.assert_allclose(counts_HV, [[0.5, 1.0]], rtol=1e-12)


def test_unbounded_skew_still_ends_where_nanoseconds_do() -> None:
    resolved = resolve(CountingConfig(max_future_skew_seconds=math.inf), [2**63 - 1, NOW_MS])
    assert resolved.times_ms_R.tolist() == [MAX_TIME_MS, NOW_MS]
    assert resolved.tallies["future"] == 1


@pytest.mark.parametrize(
    ("policy", "kept"), [("count", [True] * 4), ("drop", [True, True, True, False])]
)
def test_late_is_further_behind_than_permitted(policy: str, kept: list[bool]) -> None:
    config = CountingConfig(max_lateness_seconds=1.0, on_late=policy)
    resolved = resolve(config, [NOW_MS - 3_000, NOW_MS, NOW_MS - 1_000, NOW_MS - 1_001])
    assert resolved.keep_R.tolist() == kept
    assert resolved.tallies["late"] == 1


def test_lateness_is_measured_from_what_was_counted_before() -> None:
    config = CountingConfig(max_lateness_seconds=1.0, on_late="drop")
    resolved = resolve(config, [NOW_MS - 1_001, NOW_MS - 1_000], watermark_ms=NOW_MS)
    assert resolved.keep_R.tolist() == [False, True]


def test_nothing_is_late_by_default() -> None:
    resolved = resolve(CountingConfig(), [MAX_TIME_MS, 0], watermark_ms=MAX_TIME_MS)
    assert resolved.tallies["late"] == 0


def test_no_records() -> None:
    resolved = resolve(CountingConfig(), [], watermark_ms=NOW_MS)
    assert len(resolved.times_ms_R) == len(resolved.keep_R) == 0
    assert resolved.tallies == {"no_timestamp": 0, "future": 0, "late": 0}


def test_a_mad_clock_is_held_to_valid_times() -> None:
    event_times = EventTimes(CountingConfig())
    for now_ms in (-5, 2**70):
        times = event_times.resolve(np.array([-1, 2**63 - 1]), -1, now_ms).times_ms_R
        assert 0 <= times.min() <= times.max() <= MAX_TIME_MS
