"""The form in use elsewhere, f_new = a f_old + (1 - a) df per window, is a half-life."""

from __future__ import annotations

import numpy as np
import pytest

from streamfreq.config import DecayConfig
from streamfreq.counting import Counters, decay_to
from tests.unit.counting.reference import NOW_MS, Record, count


@pytest.mark.parametrize("alpha", [0.05, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("window_seconds", [60.0, 3600.0, 86_400.0])
def test_decay_of_alpha_and_window_is_the_moving_average(
    alpha: float, window_seconds: float
) -> None:
    decay = DecayConfig(alpha=alpha, window_seconds=window_seconds)
    rng = np.random.default_rng(0)
    window_ms = round(window_seconds * 1000)
    at_ends, at_starts = (Counters((decay.half_life_seconds,), 5) for _ in range(2))
    average_V = np.zeros(5)
    for window in range(1, 201):
        ids = rng.integers(0, 5, rng.integers(0, 20)).tolist()
        end_ms = NOW_MS + window * window_ms
        average_V = alpha * average_V + (1 - alpha) * np.bincount(ids, minlength=5)
        count(at_ends, [Record(end_ms, ids)])
        count(at_starts, [Record(end_ms - window_ms, ids)])
        ends = decay_to(at_ends.state(), end_ms).counts_HV[0]
        np.testing.assert_allclose((1 - alpha) * ends, average_V, rtol=1e-9)
        starts = decay_to(at_starts.state(), end_ms).counts_HV[0]
        np.testing.assert_allclose((1 - alpha) / alpha * starts, average_V, rtol=1e-9)
