"""The numbers behind the tables, against plain definitions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfreq.cli.views import (
    changes,
    horizon_index,
    one_id_per_name,
    order,
    ranks,
    rate_per_second,
    rising_ratio,
    top_rows,
    weight_summary,
)
from streamfreq.errors import ConfigError, SnapshotRefused, UsageError
from tests.unit.cli.samples import early, late

COUNTS = st.lists(st.integers(0, 6).map(float), min_size=1, max_size=30)


def named(snapshot):
    return lambda token_id: snapshot.labels.get(token_id)


@given(counts=COUNTS, top=st.integers(1, 40))
def test_order_is_by_value_then_id(counts: list[float], top: int) -> None:
    values = np.array(counts)
    expected = sorted((-value, i) for i, value in enumerate(counts) if value > 0)[:top]
    assert order(values, values > 0, top).tolist() == [i for _, i in expected]


@given(counts=COUNTS)
def test_ranks_count_the_heavier_tokens(counts: list[float]) -> None:
    expected = [
        1 + sum(other > value for other in counts) if value > 0 else None for value in counts
    ]
    assert ranks(np.array(counts), list(range(len(counts)))) == expected


@given(rate=st.floats(0.01, 1e4), half_life=st.floats(1, 1e5))
def test_the_rate_is_that_of_the_steady_stream(rate: float, half_life: float) -> None:
    """A stream that has had `rate` tokens a second for ever, summed as a geometric series."""
    step = half_life / 1000
    count = rate * step / (1 - 2 ** (-step / half_life))
    assert rate_per_second(count, half_life) == pytest.approx(rate, rel=1e-3)


def test_plain_counts_have_no_rate() -> None:
    assert rate_per_second(5.0, math.inf) is None


def test_horizons_by_name() -> None:
    half_lives = (3600.0, 60.0, math.inf)
    assert [horizon_index(half_lives, name) for name in ("shortest", "longest", "1h")] == [1, 2, 0]
    with pytest.raises(ConfigError, match=r"--horizon = \"2h\".*1h, 1m, inf"):
        horizon_index(half_lives, "2h")


def test_a_rising_ratio_needs_more_than_a_few_sightings() -> None:
    ratios = rising_ratio(np.array([1.0, 100.0, 0.0]), 1_000.0, np.array([0.0, 0.0, 0.0]), 1e6)
    assert ratios.tolist() == pytest.approx([1.2, 21.0, 1.0])


def test_nothing_counted_gives_ratios_of_one() -> None:
    assert rising_ratio(np.zeros(3), 0.0, np.zeros(3), 0.0).tolist() == [1.0, 1.0, 1.0]


def test_top_shows_the_heaviest_with_their_counts() -> None:
    snapshot = early()
    first, second = top_rows(snapshot, 1, 2, named(snapshot))
    assert (first.rank, first.token, first.count) == (1, "the", 100.0)
    assert first.share == 100 / 280
    assert (first.rate, first.before, first.ratio) == (None, None, None)
    assert second.count == 40.0
    assert set(first.weights) == {"default"}


def test_rising_shows_the_new_words() -> None:
    snapshot = late()
    rows = top_rows(snapshot, 0, 3, named(snapshot), rising=True)
    assert {row.token for row in rows} == {"comet", "returns", "tonight"}
    for row in rows:
        assert row.ratio is not None
        assert row.ratio > 1
        assert row.before is not None
        assert row.before > row.rank
        assert row.rate == pytest.approx(10 * math.log(2) / 3600, rel=1e-6)


def test_rising_needs_two_horizons() -> None:
    snapshot = late()
    with pytest.raises(UsageError, match="--rising"):
        top_rows(snapshot, 1, 3, named(snapshot), rising=True)


def test_changes_between_snapshots() -> None:
    a, b = early(), late()
    risen, fallen = changes(a, b, "inf", 3, named(b))
    assert {change.token for change in risen} == {"comet", "returns", "tonight"}
    assert all(change.rank_a is None and change.count_b == 10 for change in risen)
    assert all(change.ratio < 1 and change.count_a == change.count_b for change in fallen)
    assert [change.ratio for change in fallen] == sorted(change.ratio for change in fallen)


def test_a_snapshot_does_not_differ_from_itself() -> None:
    assert changes(late(), late(), "1h", 5, named(late())) == ([], [])


def test_ids_of_different_tokenizers_are_not_compared() -> None:
    with pytest.raises(SnapshotRefused, match="different tokenizers"):
        changes(early(), replace(late(), tokenizer_fingerprint="f" * 64), "1h", 5, str)


def test_weights_average_to_one_over_the_stream() -> None:
    summary = weight_summary(late())["default"]
    assert summary["mean"] == pytest.approx(1.0, rel=1e-5)
    assert summary["min"] <= 1 <= summary["max"]
    assert 0 < summary["effective"] <= 1


def test_a_word_of_several_rows_is_shown_once_with_its_least_count() -> None:
    snapshot = early()
    counts = np.zeros_like(snapshot.counts_HV)
    counts[:, 3], counts[:, 9], counts[:, 5] = 7.0, 8.0, 1.0
    doubled = replace(snapshot, counts_HV=counts, labels={3: "a", 9: "a", 5: "b"})
    merged = one_id_per_name(doubled)
    assert merged.counts_HV[:, [3, 9, 5]].tolist() == [[7.0, 0.0, 1.0]] * 2
    assert doubled.counts_HV[0, 9] == 8.0
    assert one_id_per_name(snapshot) is snapshot
