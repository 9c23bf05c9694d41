"""What a count is depends on which records were counted, and on nothing else."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamfreq.config import CountingConfig
from streamfreq.counting import MAX_TIME_MS, Counters, EventTimes, decay_to, merge
from tests.unit.counting.reference import (
    DEVICES,
    NOW_MS,
    YEAR,
    Record,
    assert_counts_agree,
    assert_same_state,
    count,
    reference_counts,
)

V = 7
HALF_LIVES = [0.001, 0.25, 1.0, 300.0, 3600.0, 86_400.0, YEAR, 10 * YEAR, math.inf]


@st.composite
def streams(draw: st.DrawFn) -> tuple[tuple[float, ...], list[Record]]:
    """Half-lives, and records in order of arrival, up to 2,000 half-lives apart."""
    half_lives = tuple(
        draw(st.lists(st.sampled_from(HALF_LIVES), min_size=1, max_size=3, unique=True))
    )
    unit_ms = 1000.0 * min(min(half_lives), 10 * YEAR)
    start_ms = draw(st.sampled_from([0, NOW_MS - 12_345, NOW_MS]))
    elapsed = st.one_of(st.floats(0, 3), st.floats(0, 200), st.floats(0, 2_000))
    record = st.builds(
        lambda half_lives_later, ids: Record(
            min(start_ms + int(half_lives_later * unit_ms), MAX_TIME_MS), ids
        ),
        elapsed,
        st.lists(st.integers(0, V - 1), max_size=6),
    )
    return half_lives, draw(st.lists(record, min_size=1, max_size=25))


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=150, deadline=None)
@given(stream=streams(), data=st.data())
def test_batches_order_workers_and_restarts_do_not_matter(
    device: str, stream: tuple[tuple[float, ...], list[Record]], data: st.DataObject
) -> None:
    half_lives, records = stream
    workers = [Counters(half_lives, V, device=device) for _ in range(data.draw(st.integers(1, 3)))]
    rest = data.draw(st.permutations(records))
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        worker = data.draw(st.integers(0, len(workers) - 1))
        count(workers[worker], rest[:size])
        if data.draw(st.booleans()):
            workers[worker] = Counters.from_state(workers[worker].state(), device=device)
        rest = rest[size:]
    merged = merge([worker.state() for worker in workers])
    watermark_ms = max(record.time_ms for record in records)
    assert merged.watermark_ms == watermark_ms
    for later in (0.0, 0.7, 50.0, 500.0):
        as_of_ms = watermark_ms + int(later * 1000 * min(*half_lives, 10 * YEAR))
        assert_counts_agree(
            decay_to(merged, as_of_ms), reference_counts(records, half_lives, V, as_of_ms)
        )


@settings(max_examples=60, deadline=None)
@given(stream=streams(), data=st.data())
def test_merge_commutes_associates_and_has_a_neutral_element(
    stream: tuple[tuple[float, ...], list[Record]], data: st.DataObject
) -> None:
    half_lives, records = stream
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), min_size=2, max_size=2)))
    parts = [records[: cuts[0]], records[cuts[0] : cuts[1]], records[cuts[1] :]]
    a, b, c = (count(Counters(half_lives, V), part).state() for part in parts)
    assert_same_state(merge([a, b]), merge([b, a]))
    assert_same_state(merge([a]), a)
    assert_same_state(merge([a, Counters(half_lives, V).state()]), a)
    one, other = merge([merge([a, b]), c]), merge([a, merge([b, c])])
    np.testing.assert_array_equal(one.landmarks_H, other.landmarks_H)
    for name in ("counts_HV", "documents_HV", "tokens_H", "records_H"):
        np.testing.assert_allclose(
            getattr(one, name), getattr(other, name), rtol=1e-12, atol=1e-300
        )


@settings(max_examples=60, deadline=None)
@given(stream=streams())
def test_a_restart_changes_no_bit(stream: tuple[tuple[float, ...], list[Record]]) -> None:
    half_lives, records = stream
    half = len(records) // 2
    straight = count(count(Counters(half_lives, V), records[:half]), records[half:])
    stopped = count(Counters(half_lives, V), records[:half])
    restarted = count(Counters.from_state(stopped.state()), records[half:])
    assert_same_state(restarted.state(), straight.state())


@settings(max_examples=150, deadline=None)
@given(
    timestamps=st.lists(
        st.one_of(
            st.integers(NOW_MS - 5_000, NOW_MS + 5_000),
            st.sampled_from([-1, -(2**63), 0, 2**63 - 1, NOW_MS + 10**11]),
        ),
        max_size=12,
    ),
    cut=st.integers(0, 12),
    lateness=st.sampled_from([0.5, 1.0, 2.0, math.inf]),
    policy=st.sampled_from(["count", "drop"]),
    watermark_ms=st.sampled_from([-1, NOW_MS - 2_000, NOW_MS]),
)
def test_event_times_are_the_same_for_every_cut_into_batches(
    timestamps: list[int], cut: int, lateness: float, policy: str, watermark_ms: int
) -> None:
    config = CountingConfig(
        max_future_skew_seconds=2.0, max_lateness_seconds=lateness, on_late=policy
    )
    event_times = EventTimes(config)
    wanted_times, wanted_keep, tallies = [], [], {"no_timestamp": 0, "future": 0, "late": 0}
    running = watermark_ms
    for timestamp in timestamps:
        time = NOW_MS if timestamp < 0 else min(timestamp, NOW_MS + 2_000)
        late = time < running - lateness * 1000
        running = max(running, time)
        tallies["no_timestamp"] += timestamp < 0
        tallies["future"] += timestamp > NOW_MS + 2_000
        tallies["late"] += late
        wanted_times.append(time)
        wanted_keep.append(policy == "count" or not late)
    times, keep, found = [], [], dict.fromkeys(tallies, 0)
    running = watermark_ms
    for part in (timestamps[:cut], timestamps[cut:]):
        resolved = event_times.resolve(np.array(part, np.int64), running, NOW_MS)
        times += resolved.times_ms_R.tolist()
        keep += resolved.keep_R.tolist()
        running = max([running, *resolved.times_ms_R[resolved.keep_R].tolist()])
        found = {name: found[name] + resolved.tallies[name] for name in found}
    assert (times, keep, found) == (wanted_times, wanted_keep, tallies)
