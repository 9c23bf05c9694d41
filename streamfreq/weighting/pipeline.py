"""From decayed counts to token weights that a loss can take as they are.

Legend: H horizons, V vocabulary, A the active tokens: those that get a weight of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamfreq.config import FactorConfig, WeightsConfig
from streamfreq.errors import ConfigError
from streamfreq.records import BoolArray, Float32Array, FloatArray
from streamfreq.weighting import schemes
from streamfreq.weighting.horizons import horizon_row
from streamfreq.weighting.registry import SCHEMES, FactorInputs, full_params
from streamfreq.weighting.validation import validate_one

_HUGE = 1e200
"""A product is held below this, so that a product of products is finite too."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightInputs:
    """Decayed counts at one moment: what a snapshot holds."""

    half_lives_seconds: tuple[float, ...]
    counts_HV: FloatArray
    documents_HV: FloatArray | None
    tokens_H: FloatArray
    records_H: FloatArray


def is_additive(config: WeightsConfig) -> bool:
    """Whether `weigh` yields a bias to add to logits (neutral: 0) and not weights (neutral: 1)."""
    return any(SCHEMES[factor.scheme].additive for factor in config.product)


def weigh(config: WeightsConfig, inputs: WeightInputs) -> Float32Array:
    """The weights tensor, float32 of shape (V,), always finite; p below is the stream.

    p is the distribution of tokens in the longest horizon (inf counts as the longest), without
    smoothing. With nothing counted all weights are 1.

    1. Multiply the factors, and divide by the mean of the product over p, so that 1 is the
       weight of an average token whatever the units of the schemes.
    2. Tokens never seen, and those below `min_count` in the longest horizon, get the neutral 1.
    3. Clip to [floor, cap].
    4. Blend with 1 by `strength`.
    5. Scale so that sum p * w = 1: the expected weight of a token drawn from the stream is 1.

    The additive scheme stands alone and skips all of this: strength * tau * log p.
    Raises ConfigError as `validate` does, and for ids of a list that are not in the vocabulary.
    """
    validate_one("weights", config, inputs.half_lives_seconds, inputs.documents_HV is not None)
    if is_additive(config):
        return _bias(config, inputs)
    longest_V = inputs.counts_HV[horizon_row("longest", inputs.half_lives_seconds, "horizon")]
    p_V = schemes.probabilities(longest_V, 0.0)
    active_V = (longest_V > 0) & (longest_V >= config.min_count)
    weights_V = np.ones(len(p_V))
    # 1. and 2. Products of the active tokens, relative to their mean; all others stay 1.
    product_A = _product(config, inputs, active_V)
    mean = _mean(product_A, p_V[active_V])
    if mean > 0:
        weights_V[active_V] = product_A / mean
    # 3. Clip.
    np.clip(weights_V, config.floor, config.cap, out=weights_V)
    # 4. Blend.
    weights_V = 1.0 + config.strength * (weights_V - 1.0)
    # 5. Scale.
    expected = float(p_V @ weights_V)
    return (weights_V / (expected if expected > 0 else 1.0)).astype(np.float32)


def _product(config: WeightsConfig, inputs: WeightInputs, active_V: BoolArray) -> FloatArray:
    product_A = np.ones(int(np.count_nonzero(active_V)))
    for factor in config.product:
        factor_inputs = _factor_inputs(factor, config.smoothing, inputs, active_V)
        compute = SCHEMES[factor.scheme].compute
        with np.errstate(over="ignore", under="ignore"):
            product_A *= compute(factor_inputs, full_params(factor.scheme, factor.params))
        np.minimum(product_A, _HUGE, out=product_A)
    return product_A


def _factor_inputs(
    factor: FactorConfig, smoothing: float, inputs: WeightInputs, active_V: BoolArray
) -> FactorInputs:
    row = horizon_row(factor.horizon, inputs.half_lives_seconds, "horizon")
    against = horizon_row(factor.against, inputs.half_lives_seconds, "against")
    counts_V = inputs.counts_HV[row]
    documents_HV = inputs.documents_HV
    return FactorInputs(
        counts_A=counts_V[active_V],
        documents_A=None if documents_HV is None else documents_HV[row, active_V],
        total=float(counts_V.sum()),
        records=float(inputs.records_H[row]),
        p_A=schemes.probabilities(counts_V, smoothing)[active_V],
        stream_p_A=schemes.probabilities(counts_V, 0.0)[active_V],
        against_p_A=schemes.probabilities(inputs.counts_HV[against], 0.0)[active_V],
        listed_A=_listed(factor, len(active_V))[active_V] if factor.ids else None,
        smoothing=smoothing,
    )


def _bias(config: WeightsConfig, inputs: WeightInputs) -> Float32Array:
    factor = config.product[0]
    every_V = np.ones(inputs.counts_HV.shape[1], np.bool_)
    factor_inputs = _factor_inputs(factor, config.smoothing, inputs, every_V)
    if factor_inputs.total <= 0:
        return np.zeros(len(every_V), np.float32)
    bias_V = SCHEMES[factor.scheme].compute(
        factor_inputs, full_params(factor.scheme, factor.params)
    )
    return (config.strength * bias_V).astype(np.float32)


def _mean(values_A: FloatArray, p_A: FloatArray) -> float:
    """The mean of the values over p; 0 when nothing has any mass."""
    mass = float(p_A.sum())
    return float(values_A @ (p_A / mass)) if mass > 0 else 0.0


def _listed(factor: FactorConfig, vocab_size: int) -> BoolArray:
    highest = max(factor.ids)
    if highest >= vocab_size:
        raise ConfigError(
            f"weights: rare_boost lists token id {highest}, but the tokenizer has {vocab_size} ids"
        )
    listed_V = np.zeros(vocab_size, np.bool_)
    listed_V[factor.ids] = True
    return listed_V
