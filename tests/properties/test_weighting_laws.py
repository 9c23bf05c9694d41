"""What holds for the weights of every scheme, whatever was counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamfreq.config import FactorConfig, WeightsConfig
from streamfreq.weighting import SCHEMES, WeightInputs, is_additive, weigh
from tests.unit.weighting.inputs import alone, stream, weight_inputs

MULTIPLICATIVE = [name for name, scheme in SCHEMES.items() if not scheme.additive]
COUNTS = st.one_of(
    st.just(0.0),
    st.floats(1e-9, 2.0),
    st.integers(1, 10_000).map(float),
    st.floats(1e3, 1e12),
    st.just(1e12),
)


@st.composite
def counted(draw: st.DrawFn, min_size: int = 1) -> WeightInputs:
    """Short counts that are no larger than the long ones, documents no larger than counts."""
    long = draw(st.lists(COUNTS, min_size=min_size, max_size=12))
    part = st.integers(0, 100).map(lambda percent: percent / 100)
    share = st.lists(part, min_size=len(long), max_size=len(long))
    short = [count * part for count, part in zip(long, draw(share), strict=True)]
    parts = [max(part, 0.01) for part in draw(share)]
    documents = [
        [count * part for count, part in zip(row, parts, strict=True)] for row in (short, long)
    ]
    return weight_inputs(short, long, documents=documents, records=max(1.0, *map(max, documents)))


@st.composite
def configs(draw: st.DrawFn) -> WeightsConfig:
    names = draw(st.lists(st.sampled_from(MULTIPLICATIVE), max_size=3))
    product = []
    for name in names:
        horizon = draw(st.sampled_from(["shortest", "longest"]))
        product.append(
            FactorConfig(scheme=name, horizon="shortest" if name == "emergence" else horizon)
        )
    return WeightsConfig(
        product=product,
        strength=draw(st.sampled_from([0.0, 0.3, 1.0])),
        floor=draw(st.sampled_from([1e-3, 0.1, 1.0])),
        cap=draw(st.sampled_from([1.0, 10.0, 1e6])),
        min_count=draw(st.sampled_from([0.0, 1.0, 50.0])),
        smoothing=draw(st.sampled_from([0.0, 1.0])),
    )


@settings(max_examples=400, deadline=None)
@given(config=configs(), inputs=counted())
def test_weights_are_safe(config: WeightsConfig, inputs: WeightInputs) -> None:
    weights_V = weigh(config, inputs)
    assert weights_V.dtype == np.float32
    assert weights_V.shape == (inputs.counts_HV.shape[1],)
    assert np.isfinite(weights_V).all()
    assert (weights_V > 0).all()
    np.testing.assert_array_equal(weigh(config, inputs), weights_V)
    longest_V = inputs.counts_HV[-1]
    if longest_V.any():
        assert float(stream(inputs) @ weights_V) == pytest.approx(1.0, abs=1e-6)
    else:
        assert (weights_V == 1).all()
    if config.strength == 0:
        np.testing.assert_allclose(weights_V, 1.0, rtol=1e-6)


@settings(max_examples=200, deadline=None)
@given(config=configs(), inputs=counted())
def test_weights_lie_within_their_bounds_before_the_last_scaling(
    config: WeightsConfig, inputs: WeightInputs
) -> None:
    """A token that was never seen is neutral, so its weight tells the scale."""
    padded = WeightInputs(
        inputs.half_lives_seconds,
        np.pad(inputs.counts_HV, ((0, 0), (0, 1))),
        np.pad(inputs.documents_HV, ((0, 0), (0, 1))),  # type: ignore[arg-type]
        inputs.tokens_H,
        inputs.records_H,
    )
    weights_V = weigh(config, padded).astype(np.float64)
    relative_V = weights_V / weights_V[-1]
    assert relative_V.min() >= (1 + config.strength * (config.floor - 1)) * (1 - 1e-5)
    assert relative_V.max() <= (1 + config.strength * (config.cap - 1)) * (1 + 1e-5)
    never_or_rare = (padded.counts_HV[-1] == 0) | (padded.counts_HV[-1] < config.min_count)
    np.testing.assert_allclose(relative_V[never_or_rare], 1.0, rtol=1e-5)


@pytest.mark.parametrize(
    "scheme", [n for n in MULTIPLICATIVE if n not in ("emergence", "chi_square")]
)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_weights_are_monotone_in_the_promised_direction(scheme: str, data: st.DataObject) -> None:
    counts = data.draw(st.lists(COUNTS.filter(bool), min_size=2, max_size=12))
    inputs = weight_inputs(counts, documents=[counts], records=max(counts))
    config = alone(scheme, floor=0.01, cap=100.0, smoothing=data.draw(st.sampled_from([0.0, 1.0])))
    in_order_V = weigh(config, inputs)[np.argsort(counts, kind="stable")]
    steps = np.diff(in_order_V) * (1 if SCHEMES[scheme].direction == "frequent-up" else -1)
    assert (steps >= -1e-6 * np.abs(in_order_V[1:])).all()


@settings(max_examples=100, deadline=None)
@given(long=st.floats(1, 1e9), shares=st.lists(st.floats(0, 1), min_size=2, max_size=12))
def test_emergence_grows_with_the_short_count(long: float, shares: list[float]) -> None:
    short = sorted(share * long for share in shares)
    weights_V = weigh(alone("emergence"), weight_inputs(short, [long] * len(short)))
    assert (np.diff(weights_V) >= -1e-6 * weights_V[1:]).all()


@settings(max_examples=100, deadline=None)
@given(counts=st.lists(COUNTS.filter(bool), min_size=1, max_size=12))
def test_the_bias_grows_with_the_count_and_is_finite(counts: list[float]) -> None:
    config = alone("logit_adjustment")
    assert is_additive(config)
    bias_V = weigh(config, weight_inputs([*counts, 0.0]))
    assert np.isfinite(bias_V).all()
    assert bias_V.dtype == np.float32
    assert (np.diff(bias_V[np.argsort([*counts, 0.0])]) >= 0).all()


@pytest.mark.parametrize("scheme", [name for name, scheme in SCHEMES.items() if scheme.scale_free])
@settings(max_examples=60, deadline=None)
@given(inputs=counted(min_size=2), factor=st.sampled_from([0.25, 3.0, 1e3]))
def test_the_scale_of_all_counts_does_not_matter(
    scheme: str, inputs: WeightInputs, factor: float
) -> None:
    """While everything decays alike, in an idle stream, the weights stay."""
    assert inputs.documents_HV is not None
    scaled = WeightInputs(
        inputs.half_lives_seconds,
        inputs.counts_HV * factor,
        inputs.documents_HV * factor,
        inputs.tokens_H * factor,
        inputs.records_H * factor,
    )
    # rare_boost decides by a sum of probabilities, which rounding may tip over a bound.
    params = {"mass": 0.0517} if scheme == "rare_boost" else {}
    config = alone(scheme, params)
    np.testing.assert_allclose(weigh(config, scaled), weigh(config, inputs), rtol=2e-6, atol=1e-9)
