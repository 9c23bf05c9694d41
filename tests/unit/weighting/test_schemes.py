"""Each scheme against its formula, and the sign of each."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streamfreq.config import FactorConfig
from streamfreq.weighting import SCHEMES, schemes, weigh
from tests.unit.weighting.inputs import alone, weight_inputs, weights_of

COUNTS = np.array([1000.0, 100.0, 10.0, 1.0])
P = COUNTS / COUNTS.sum()


def test_every_scheme_of_the_configuration_is_there() -> None:
    allowed = FactorConfig.model_json_schema()["properties"]["scheme"]["enum"]
    assert set(SCHEMES) == set(allowed)


def test_every_scheme_has_a_golden_sign() -> None:
    assert set(GOLDEN_SIGN) | {"emergence", "chi_square", "logit_adjustment"} == set(SCHEMES)


GOLDEN_SIGN = {
    "frequency": "frequent-up",
    "log": "frequent-up",
    "idf": "rarer-up",
    "inverse_power": "rarer-up",
    "rare_boost": "rarer-up",
    "effective_number": "rarer-up",
    "exponential": "rarer-up",
    "subsampling": "rarer-up",
}


@pytest.mark.parametrize(("scheme", "direction"), GOLDEN_SIGN.items())
def test_the_sign_of(scheme: str, direction: str) -> None:
    assert SCHEMES[scheme].direction == direction
    inputs = weight_inputs(COUNTS, documents=[[90.0, 60.0, 9.0, 1.0]])
    weights = weights_of(alone(scheme), inputs)
    common, rare = weights[0], weights[-1]
    assert rare > 1.001 > 0.999 > common if direction == "rarer-up" else common > 1 > rare


def test_the_sign_of_emergence() -> None:
    assert SCHEMES["emergence"].direction == "rising-up"
    rising, steady, falling = weights_of(alone("emergence"), weight_inputs([60, 30, 0], [100] * 3))
    assert rising > 1.1 > steady > 0.9 > falling


def test_the_sign_of_chi_square() -> None:
    assert SCHEMES["chi_square"].direction == "middle-up"
    rarest, middle, common = weights_of(alone("chi_square"), weight_inputs([1, 100, 10_000]))
    assert middle > rarest
    assert middle > common


def test_the_sign_of_logit_adjustment() -> None:
    """Added to the logits in the loss: the frequent token gets the larger bias."""
    assert SCHEMES["logit_adjustment"].direction == "frequent-up"
    bias = weights_of(alone("logit_adjustment"), weight_inputs(COUNTS))
    assert 0 > bias[0] > bias[1] > bias[2] > bias[3]


def test_probabilities() -> None:
    assert schemes.probabilities(np.array([3.0, 1.0]), 0.0).tolist() == [0.75, 0.25]
    assert schemes.probabilities(np.array([3.0, 0.0]), 1.0).tolist() == [0.8, 0.2]
    assert schemes.probabilities(np.zeros(2), 0.0).tolist() == [0.0, 0.0]


def test_formulas() -> None:
    np.testing.assert_array_equal(schemes.frequency(P), P)
    np.testing.assert_allclose(schemes.log_frequency(COUNTS), np.log(1 + COUNTS))
    np.testing.assert_allclose(
        schemes.idf(np.array([50.0, 1.0]), 100.0, 0.0), [math.log(2), math.log(100)]
    )
    np.testing.assert_allclose(schemes.inverse_power(P, 0.5), 1 / np.sqrt(P))
    np.testing.assert_allclose(
        schemes.effective_number(np.array([1.0, 2.0, 3.0]), 0.9), [1, 1 / 1.9, 1 / 2.71]
    )
    relative = np.array([0.0, 1.0, 2.0])
    np.testing.assert_allclose(
        schemes.exponential(relative, 3.0, 0.5), 3 * np.exp(-0.5 * relative) + 1
    )
    np.testing.assert_allclose(
        schemes.chi_square(relative, 3.0, 0.5), 3 * relative**2 * np.exp(-0.5 * relative) + 1
    )
    np.testing.assert_allclose(
        schemes.subsampling(np.array([1e-2, 1e-4, 1e-6]), 1e-4), [0.1, 1.0, 1.0]
    )
    np.testing.assert_allclose(schemes.logit_adjustment(P, 2.0), 2 * np.log(P))
    np.testing.assert_allclose(
        schemes.emergence(np.array([5.0]), np.array([0.01]), 200.0, 3.0), [8 / 5]
    )


def test_effective_number_has_the_limits_of_its_paper() -> None:
    """beta near 0 weighs all the same, beta near 1 by the inverse count."""
    counts = np.array([1.0, 10.0, 100.0])
    np.testing.assert_allclose(schemes.effective_number(counts, 1e-6), [1, 1, 1], rtol=1e-5)
    np.testing.assert_allclose(schemes.effective_number(counts, 1 - 1e-9), 1 / counts, rtol=1e-6)


def test_chi_square_peaks_at_twice_the_inverse_rate() -> None:
    relative = np.linspace(0, 10, 1001)
    assert relative[np.argmax(schemes.chi_square(relative, 1.0, 0.5))] == 4.0


def test_rare_boost_lifts_the_rarest_mass_and_never_splits_equals() -> None:
    p = np.array([0.5, 0.2, 0.1, 0.1, 0.06, 0.04])
    assert schemes.rare_boost(p, 2.0, 0.11).tolist() == [1, 1, 1, 1, 3, 3]
    assert schemes.rare_boost(p, 2.0, 0.25).tolist() == [1, 1, 1, 1, 3, 3]
    assert schemes.rare_boost(p, 2.0, 0.31).tolist() == [1, 1, 3, 3, 3, 3]
    assert schemes.rare_boost(p, 2.0, 0.0).tolist() == [1] * 6
    assert schemes.rare_boost(np.empty(0), 2.0, 0.5).tolist() == []


def test_relative_to_median_is_of_the_seen_tokens() -> None:
    assert schemes.relative_to_median(np.array([0, 0, 0, 2.0, 4.0, 8.0])).tolist() == [
        0, 0, 0, 0.5, 1, 2,
    ]  # fmt: skip
    assert schemes.relative_to_median(np.zeros(3)).tolist() == [0, 0, 0]


def test_logit_adjustment_of_what_was_never_seen() -> None:
    bias = schemes.logit_adjustment(np.array([0.75, 0.25, 0.0]), 1.0)
    assert bias[2] == bias[1] == math.log(0.25)
    assert schemes.logit_adjustment(np.zeros(3), 1.0).tolist() == [0, 0, 0]


def test_one_stray_occurrence_is_no_emergence() -> None:
    """In an hour of a thousand tokens a token seen once ever is expected 0.001 times."""
    stray, burst = schemes.emergence(np.array([1.0, 30.0]), np.full(2, 1e-6), 1_000.0, 3.0)
    assert stray < 1.34
    assert burst > 10


def test_emergence_compares_rates_and_not_masses() -> None:
    """A short horizon holds less of everything; that alone is no change."""
    long = np.array([500.0, 300.0, 200.0])
    weights = weights_of(alone("emergence"), weight_inputs(long / 50, long))
    np.testing.assert_allclose(weights, 1.0, rtol=1e-6)


def test_the_default_prior_of_emergence_is_said_once() -> None:
    inputs = weight_inputs([5.0, 1.0], [10.0, 90.0])
    np.testing.assert_array_equal(
        weigh(alone("emergence"), inputs), weigh(alone("emergence", {"prior_count": 3.0}), inputs)
    )
