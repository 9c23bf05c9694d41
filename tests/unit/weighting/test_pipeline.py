from __future__ import annotations

import math

import numpy as np
import pytest

from streamfreq.config import FactorConfig, WeightsConfig
from streamfreq.errors import ConfigError
from streamfreq.weighting import SCHEMES, is_additive, weigh
from tests.unit.weighting.inputs import alone, stream, weight_inputs, weights_of

DEFAULT = WeightsConfig()


def test_the_steps_by_hand() -> None:
    """p = .8 .15 .04 .01; p^-1 over its mean 4: .3125, 1.667, 6.25, 25; capped, blended, scaled."""
    inputs = weight_inputs([800.0, 150.0, 40.0, 10.0, 0.0])
    config = alone("inverse_power", {"power": 1.0}, floor=0.5, cap=10.0, strength=0.5)
    blended = np.array([0.75, (1 + 5 / 3) / 2, (1 + 6.25) / 2, 5.5, 1.0])
    expected = 0.8 * 0.75 + 0.15 * blended[1] + 0.04 * blended[2] + 0.01 * 5.5
    np.testing.assert_allclose(weights_of(config, inputs), blended / expected, rtol=1e-6)


def test_nothing_counted_is_neutral() -> None:
    for scheme in SCHEMES:
        config = alone(scheme, smoothing=1.0)
        neutral = 0.0 if is_additive(config) else 1.0
        inputs = weight_inputs([0] * 4, [0] * 4, documents=[[0] * 4] * 2, records=0.0)
        assert weights_of(config, inputs) == [neutral] * 4
    assert weights_of(DEFAULT, weight_inputs([0] * 3, [0] * 3)) == [1.0] * 3


def test_an_idle_short_horizon_says_nothing() -> None:
    assert weights_of(alone("emergence"), weight_inputs([0, 0], [9, 1])) == [1.0, 1.0]


def test_never_seen_and_below_min_count_are_neutral() -> None:
    inputs = weight_inputs([1000.0, 100.0, 4.9, 5.0, 0.0])
    weights = weights_of(alone("inverse_power", {"power": 1.0}, min_count=5.0), inputs)
    neutral = weights[4]
    assert weights[2] == neutral
    assert weights[3] > 10 * neutral
    without_minimum = weights_of(alone("inverse_power", {"power": 1.0}), inputs)
    assert without_minimum[2] > without_minimum[3] > without_minimum[4]


def test_min_count_is_of_the_longest_horizon() -> None:
    """A new token is rare in the short horizon too; what counts is that it is known at all."""
    inputs = weight_inputs([0.5, 0.5], [10.0, 90.0])
    weights = weights_of(alone("inverse_power", min_count=1.0, horizon="shortest"), inputs)
    assert weights == [1.0, 1.0]
    weights = weights_of(alone("inverse_power", min_count=1.0, horizon="longest"), inputs)
    assert weights[0] > weights[1]


def test_a_list_of_ids_is_boosted_in_place_of_the_rarest() -> None:
    inputs = weight_inputs([100.0, 50.0, 10.0, 1.0])
    config = alone("rare_boost", {"boost": 2.0}, ids=[0, 3])
    weights = weights_of(config, inputs)
    assert weights[0] == weights[3] == pytest.approx(3 * weights[1], rel=1e-6)
    with pytest.raises(ConfigError, match="token id 4, but the tokenizer has 4 ids"):
        weigh(alone("rare_boost", ids=[4]), inputs)


def test_factors_multiply() -> None:
    inputs = weight_inputs([500.0, 20.0, 3.0], [900.0, 80.0, 20.0])
    twice = WeightsConfig(
        product=[FactorConfig(scheme="inverse_power", params={"power": 0.25})] * 2,
        floor=1e-9,
        cap=1e9,
    )
    once = twice.model_copy(
        update={"product": [FactorConfig(scheme="inverse_power", params={"power": 0.5})]}
    )
    np.testing.assert_allclose(weigh(twice, inputs), weigh(once, inputs), rtol=1e-6)


def test_a_product_of_extremes_is_finite() -> None:
    config = WeightsConfig(
        product=[FactorConfig(scheme="inverse_power", params={"power": 4.0})] * 8
    )
    weights = weigh(config, weight_inputs([1e12, 1.0, 0.0]))
    assert np.isfinite(weights).all()
    assert weights[1] > weights[0]


def test_no_factor_is_neutral() -> None:
    assert weights_of(WeightsConfig(product=[]), weight_inputs([5.0, 1.0])) == [1.0, 1.0]


def test_a_token_in_every_record_has_an_idf_of_nothing() -> None:
    config = alone("idf")
    inputs = weight_inputs([100.0], documents=[[100.0]], records=100.0)
    assert weights_of(config, inputs) == [1.0]


def test_a_single_horizon_makes_emergence_neutral() -> None:
    """The default product must work with `--half-life inf` alone."""
    inputs = weight_inputs([90.0, 9.0, 1.0])
    rarity = DEFAULT.model_copy(update={"product": DEFAULT.product[:1]})
    np.testing.assert_allclose(weigh(DEFAULT, inputs), weigh(rarity, inputs), rtol=1e-6)


def test_inf_is_the_longest_horizon() -> None:
    inputs = weight_inputs([10.0, 10.0], [90.0, 10.0], half_lives=(3600.0, math.inf))
    named = alone("inverse_power", horizon="inf")
    assert weights_of(alone("inverse_power"), inputs) == weights_of(named, inputs)
    assert weights_of(alone("inverse_power", horizon="1h"), inputs) == [1.0, 1.0]


def test_horizons_need_not_be_sorted() -> None:
    rows = [[5.0, 5.0], [90.0, 10.0]]
    straight = weight_inputs(*rows, half_lives=(300.0, 86_400.0))
    turned = weight_inputs(*rows[::-1], half_lives=(86_400.0, 300.0))
    assert weights_of(DEFAULT, straight) == weights_of(DEFAULT, turned)


def test_the_default_lifts_rising_rare_tokens_most() -> None:
    rng = np.random.default_rng(0)
    long_V = np.floor(1e5 / np.arange(1, 2001))
    short_V = rng.poisson(long_V / 300).astype(float)
    short_V[1500] = long_V[1500] = 80.0
    weights_V = weigh(DEFAULT, weight_inputs(short_V, long_V, half_lives=(300.0, 86_400.0)))
    assert int(np.argmax(weights_V)) == 1500
    assert weights_V[1900:].mean() > weights_V[:20].mean()
    assert float(stream(weight_inputs(long_V)) @ weights_V) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0])
def test_the_additive_scheme_skips_the_safety_steps(strength: float) -> None:
    inputs = weight_inputs([900.0, 99.0, 1.0])
    config = alone("logit_adjustment", {"tau": 2.0}, floor=0.9, cap=1.1, strength=strength)
    assert is_additive(config)
    assert not is_additive(DEFAULT)
    np.testing.assert_allclose(
        weigh(config, inputs), strength * 2 * np.log(stream(inputs)), rtol=1e-6
    )


def test_the_caller_keeps_its_counts() -> None:
    inputs = weight_inputs([5.0, 1.0, 0.0], [9.0, 1.0, 0.0], documents=[[1, 1, 0]] * 2)
    before = inputs.counts_HV.copy()
    for scheme in SCHEMES:
        weigh(alone(scheme), inputs)
    np.testing.assert_array_equal(inputs.counts_HV, before)
