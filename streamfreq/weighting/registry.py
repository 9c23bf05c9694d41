"""Every scheme by its name: what it computes from, its parameters, its direction.

Legend: A the tokens that get a weight of their own (seen, and not below min_count).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from streamfreq.records import BoolArray, FloatArray
from streamfreq.weighting import schemes

Direction = Literal["rarer-up", "frequent-up", "rising-up", "middle-up"]
"""Which tokens a scheme lifts; middle-up: those about the median count."""

Params = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number that a scheme takes: its default and the closed range that is allowed."""

    default: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class FactorInputs:
    """What one factor may look at, for A tokens.

    counts_A, documents_A: of the factor's horizon. total, records: of all V tokens in it.
    p_A: counts as probabilities after smoothing. stream_p_A: without smoothing.
    against_p_A: without smoothing, of the horizon to compare with.
    listed_A: which tokens an explicit list names; None without a list.
    """

    counts_A: FloatArray
    documents_A: FloatArray | None
    total: float
    records: float
    p_A: FloatArray
    stream_p_A: FloatArray
    against_p_A: FloatArray
    listed_A: BoolArray | None
    smoothing: float


@dataclass(frozen=True, slots=True)
class Scheme:
    """One rule.

    additive: a bias for logits and no factor. scale_free: multiplying all counts by a constant
    changes nothing (with smoothing 0).
    """

    compute: Callable[[FactorInputs, Params], FloatArray]
    direction: Direction
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    additive: bool = False
    scale_free: bool = False
    needs_documents: bool = False


def _idf(inputs: FactorInputs, params: Params) -> FloatArray:
    if inputs.documents_A is None:
        raise ValueError("idf needs document counts; validate the configuration first")
    return schemes.idf(inputs.documents_A, inputs.records, inputs.smoothing)


def _rare_boost(inputs: FactorInputs, params: Params) -> FloatArray:
    if inputs.listed_A is not None:
        return schemes.listed_boost(inputs.listed_A, params["boost"])
    return schemes.rare_boost(inputs.stream_p_A, params["boost"], params["mass"])


SCHEMES: Mapping[str, Scheme] = {
    "frequency": Scheme(
        lambda inputs, params: schemes.frequency(inputs.p_A), "frequent-up", scale_free=True
    ),
    "log": Scheme(lambda inputs, params: schemes.log_frequency(inputs.counts_A), "frequent-up"),
    "idf": Scheme(_idf, "rarer-up", scale_free=True, needs_documents=True),
    "inverse_power": Scheme(
        lambda inputs, params: schemes.inverse_power(inputs.p_A, params["power"]),
        "rarer-up",
        {"power": Parameter(0.2, 0.0, 4.0)},
        scale_free=True,
    ),
    "rare_boost": Scheme(
        _rare_boost,
        "rarer-up",
        {"boost": Parameter(1.0, 0.0, 1e6), "mass": Parameter(0.05, 0.0, 1.0)},
        scale_free=True,
    ),
    "effective_number": Scheme(
        lambda inputs, params: schemes.effective_number(inputs.counts_A, params["beta"]),
        "rarer-up",
        {"beta": Parameter(0.9999, 1e-6, 1 - 1e-12)},
    ),
    "exponential": Scheme(
        lambda inputs, params: schemes.exponential(
            schemes.relative_to_median(inputs.counts_A), params["amplitude"], params["rate"]
        ),
        "rarer-up",
        {"amplitude": Parameter(1.0, 0.0, 1e6), "rate": Parameter(1.0, 1e-9, 1e9)},
        scale_free=True,
    ),
    "chi_square": Scheme(
        lambda inputs, params: schemes.chi_square(
            schemes.relative_to_median(inputs.counts_A), params["amplitude"], params["rate"]
        ),
        "middle-up",
        {"amplitude": Parameter(1.0, 0.0, 1e6), "rate": Parameter(1.0, 1e-9, 1e9)},
        scale_free=True,
    ),
    "subsampling": Scheme(
        lambda inputs, params: schemes.subsampling(inputs.p_A, params["threshold"]),
        "rarer-up",
        {"threshold": Parameter(1e-5, 1e-12, 1.0)},
        scale_free=True,
    ),
    "logit_adjustment": Scheme(
        lambda inputs, params: schemes.logit_adjustment(inputs.p_A, params["tau"]),
        "frequent-up",
        {"tau": Parameter(1.0, 0.0, 100.0)},
        additive=True,
        scale_free=True,
    ),
    "emergence": Scheme(
        lambda inputs, params: schemes.emergence(
            inputs.counts_A, inputs.against_p_A, inputs.total, params["prior_count"]
        ),
        "rising-up",
        {"prior_count": Parameter(3.0, 1e-6, 1e9)},
    ),
}
"""By the names that `scheme` takes in the configuration."""


def full_params(name: str, params: Params) -> Params:
    """The parameters of scheme `name` with the defaults filled in."""
    return {
        key: params.get(key, parameter.default)
        for key, parameter in SCHEMES[name].parameters.items()
    }
