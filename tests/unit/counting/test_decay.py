from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from streamfreq.counting import MAX_TIME_MS
from streamfreq.counting.decay import decay_factor, half_life_ns, landmark_for, record_weights
from streamfreq.errors import ConfigError
from tests.unit.counting.reference import NOW_MS, YEAR


@pytest.mark.parametrize("seconds", [0.001, 1.0, 7.3, 3600.0, 10 * YEAR])
@pytest.mark.parametrize("later", [-900, -3, 0, 1, 127])
def test_weights_have_full_precision(seconds: float, later: int) -> None:
    half_life = half_life_ns(seconds)
    assert half_life is not None
    landmark = landmark_for(NOW_MS, half_life)
    low = max(0, min((landmark + later) * half_life // 1_000_000, MAX_TIME_MS - 40))
    times = np.arange(low, low + 40, dtype=np.int64)
    for time, weight in zip(times, record_weights(times, half_life, landmark), strict=True):
        exponent = Fraction(int(time) * 1_000_000 - landmark * half_life, half_life)
        whole = math.floor(exponent)
        assert weight == pytest.approx(math.ldexp(2.0 ** float(exponent - whole), whole), rel=1e-15)


def test_a_weight_keeps_its_bits_when_the_landmark_moves() -> None:
    half_life = half_life_ns(12.34)
    times = NOW_MS + np.arange(0, 1_000_000, 777)
    landmark = landmark_for(NOW_MS, half_life)
    np.testing.assert_array_equal(
        np.ldexp(record_weights(times, half_life, landmark), -100),
        record_weights(times, half_life, landmark + 100),
    )


def test_inf_is_plain_counting() -> None:
    assert half_life_ns(math.inf) is None
    assert landmark_for(NOW_MS, None) == 0
    assert record_weights(np.array([0, NOW_MS]), None, 0).tolist() == [1.0, 1.0]
    assert decay_factor(NOW_MS, None, 0) == (1.0, 0)


@pytest.mark.parametrize("as_of_ms", [-(10**30), -1, 0, NOW_MS, 10**30])
def test_the_factor_exists_at_any_time(as_of_ms: int) -> None:
    mantissa, exponent = decay_factor(as_of_ms, half_life_ns(1.0), 1_700_000_000)
    assert 0.5 < mantissa <= 1.0
    assert -3_000 <= exponent <= 3_000


@pytest.mark.parametrize("seconds", [0.0, -1.0, 4e-10, 1e10, math.nan, -math.inf])
def test_half_lives_out_of_range(seconds: float) -> None:
    with pytest.raises(ConfigError, match=r"counting\.half_lives"):
        half_life_ns(seconds)
