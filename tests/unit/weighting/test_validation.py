from __future__ import annotations

import math

import pytest

from streamfreq.config import FactorConfig, WeightsConfig
from streamfreq.errors import ConfigError
from streamfreq.weighting import SCHEMES, validate, weigh
from tests.unit.weighting.inputs import weight_inputs

HALF_LIVES = (300.0, 3600.0, 86_400.0)


def factors(*product: dict[str, object]) -> WeightsConfig:
    return WeightsConfig(product=[FactorConfig(**factor) for factor in product])  # type: ignore[arg-type]


def check(config: WeightsConfig, documents: bool = True) -> None:
    validate({"mine": config}, HALF_LIVES, documents)


def test_the_default_and_every_scheme_are_valid() -> None:
    validate({"default": WeightsConfig()}, (math.inf,), documents=False)
    for scheme in SCHEMES:
        horizon = "shortest" if scheme == "emergence" else "longest"
        check(factors({"scheme": scheme, "horizon": horizon}))


@pytest.mark.parametrize("horizon", ["shortest", "longest", "5m", "300s", "300", "1h", "24h", "1d"])
def test_horizons_by_any_spelling(horizon: str) -> None:
    check(factors({"scheme": "frequency", "horizon": horizon}))


WRONG = {
    "unknown horizon": (
        [{"scheme": "log", "horizon": "2h"}],
        'weights.mine.product[0].horizon = "2h": one of shortest, longest, or a configured '
        "half-life (5m, 1h, 1d)",
    ),
    "no horizon at all": (
        [{"scheme": "log"}, {"scheme": "log", "horizon": "long"}],
        'weights.mine.product[1].horizon = "long"',
    ),
    "unknown against": (
        [{"scheme": "emergence", "horizon": "5m", "against": "inf"}],
        'weights.mine.product[0].against = "inf"',
    ),
    "emergence the wrong way round": (
        [{"scheme": "emergence", "horizon": "24h", "against": "1h"}],
        'horizon "24h" is longer than against "1h"',
    ),
    "emergence with the default horizon": (
        [{"scheme": "emergence", "against": "1h"}],
        'horizon "longest" is longer',
    ),
    "against without emergence": (
        [{"scheme": "log", "against": "1h"}],
        "weights.mine.product[0].against: only emergence compares two horizons",
    ),
    "unknown parameter": (
        [{"scheme": "inverse_power", "params": {"alpha": 0.5}}],
        "weights.mine.product[0].params.alpha: inverse_power takes power",
    ),
    "parameter of a scheme without any": (
        [{"scheme": "log", "params": {"base": 2.0}}],
        "log takes none",
    ),
    "wrong sign": (
        [{"scheme": "inverse_power", "params": {"power": -0.5}}],
        "weights.mine.product[0].params.power = -0.5: from 0 to 4",
    ),
    "not a number": (
        [{"scheme": "inverse_power", "params": {"power": math.nan}}],
        "power = nan: from 0 to 4",
    ),
    "beta of one": ([{"scheme": "effective_number", "params": {"beta": 1.0}}], "beta = 1: from"),
    "additive times something": (
        [{"scheme": "log"}, {"scheme": "logit_adjustment"}],
        "weights.mine.product[1]: logit_adjustment is a bias to add to logits and no factor",
    ),
    "ids of another scheme": (
        [{"scheme": "log", "ids": [1]}],
        "weights.mine.product[0].ids: only rare_boost takes a list",
    ),
    "ids and mass": (
        [{"scheme": "rare_boost", "ids": [1], "params": {"mass": 0.1}}],
        "weights.mine.product[0].params.mass: has no effect beside ids",
    ),
    "negative id": ([{"scheme": "rare_boost", "ids": [3, -1]}], "ids: -1 is no token id"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong(case: str) -> None:
    product, message = WRONG[case]
    with pytest.raises(ConfigError) as caught:
        check(factors(*product))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_idf_needs_documents() -> None:
    config = factors({"scheme": "idf"})
    check(config, documents=True)
    with pytest.raises(ConfigError, match=r"idf needs counting\.documents = true"):
        check(config, documents=False)
    with pytest.raises(ConfigError, match=r"idf needs counting\.documents = true"):
        weigh(config, weight_inputs([1.0, 2.0]))
