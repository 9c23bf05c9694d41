"""From a snapshot's counts to the tables that the trainer uses.

Shape legend: H horizons, V the model's vocabulary, S the snapshot's (the tokenizer's), S <= V.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from streamfreq.codec import Snapshot
from streamfreq.config import FactorConfig, WeightsConfig
from streamfreq.errors import ConfigError
from streamfreq.records import FloatArray
from streamfreq.weighting import WeightInputs, weigh
from streamfreq.weighting.horizons import horizon_row
from streamfreq.weighting.registry import SCHEMES
from streamfreq.weighting.schemes import emergence, probabilities
from trainer.config import TokenWeightsConfig
from trainer.token_weights.tables import TokenTables
from trainer.token_weights.terms import Terms

log = logging.getLogger("trainer.token_weights")

PRIOR_COUNT = 3.0
"""Of `rise_V`: the scheme emergence's own default."""

_SMALLEST = float(np.finfo(np.float32).tiny)
"""A smoothed p is held above this, so that it is above 0 in float32 too."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a snapshot becomes tables.

    draw_horizon: whose frequencies the replay draws by. vocab_size: the model's; None: that of
    the snapshot's tokenizer.
    """

    weights: TokenWeightsConfig = field(default_factory=TokenWeightsConfig)
    draw_horizon: str = "longest"
    vocab_size: int | None = None
    terms: Terms | None = None

    def build(self, snapshot: Snapshot) -> TokenTables:
        """The tables of this snapshot, on the CPU.

        1. The weights: a product of schemes from the counts, or a tensor that the snapshot holds.
        2. The terms, after the cap, also those never seen; then again sum p * w = 1.
        3. Padding to the model's vocabulary: weight 1, share 0.

        A snapshot without counts gives neutral weights, whatever the terms. Raises ConfigError
        when the model's vocabulary is smaller than the tokenizer's, a published tensor is not
        there, or a horizon is not among the snapshot's.
        """
        half_lives = snapshot.half_lives_seconds
        longest = horizon_row("longest", half_lives, "weights")
        counts_S = snapshot.counts_HV[longest]
        share_S = probabilities(counts_S, 0.0)
        weights_S = self._weights(snapshot)  # 1
        if self.terms is not None and share_S.any():  # 2
            weights_S = weights_S * self.terms.lifted(share_S)
            expected = float(share_S @ weights_S)
            weights_S = weights_S / (expected if expected > 0 else 1.0)
        draw_row = horizon_row(self.draw_horizon, half_lives, "replay.horizon")
        smoothing = self.weights.smoothing or 1.0
        size = self._size(snapshot)
        draw_S = _smoothed(snapshot.counts_HV[draw_row], smoothing)
        smoothed_S = _smoothed(counts_S, smoothing)
        return TokenTables(  # 3
            version=snapshot.version,
            epoch=snapshot.epoch,
            created_at_ms=snapshot.created_at_ms,
            as_of_ms=snapshot.as_of_ms,
            weights_V=_padded(weights_S, size, 1.0),
            bias_V=_padded(np.log(smoothed_S), size, float(np.log(smoothed_S.min()))),
            share_V=_padded(share_S, size, 0.0),
            draw_share_V=_padded(draw_S, size, float(draw_S.min())),
            rise_V=_padded(_rise(snapshot, share_S), size, 1.0),
            count_V=_padded(counts_S, size, 0.0),
        )

    def _size(self, snapshot: Snapshot) -> int:
        size = snapshot.vocab_size if self.vocab_size is None else self.vocab_size
        if size < snapshot.vocab_size:
            raise ConfigError(
                f"the model has {size} token ids, but the snapshot counts {snapshot.vocab_size} "
                f"(tokenizer {snapshot.tokenizer_name}); use the model's own tokenizer in both"
            )
        return size

    def _weights(self, snapshot: Snapshot) -> FloatArray:
        name = self.weights.published
        if not name:
            inputs = WeightInputs(
                snapshot.half_lives_seconds,
                snapshot.counts_HV,
                snapshot.documents_HV,
                snapshot.tokens_H,
                snapshot.records_H,
            )
            return weigh(self.weights, inputs).astype(np.float64)
        if name not in snapshot.weights:
            there = ", ".join(sorted(snapshot.weights)) or "none"
            raise ConfigError(
                f"weights.published = {name}: the snapshot holds {there}; name one of them, or "
                "leave it empty"
            )
        if _is_bias(snapshot.schemes.get(name)):
            raise ConfigError(
                f"weights.published = {name}: this is a bias for logits and no weight; set "
                "loss.kind = logit_adjustment in place of it"
            )
        return snapshot.weights[name].astype(np.float64)


def check_recipe(config: TokenWeightsConfig) -> None:
    """Raise ConfigError for what can be known to be wrong before there is a snapshot."""
    for index, factor in enumerate(config.product):
        name = f"weights.product[{index}]"
        scheme = SCHEMES[factor.scheme]
        if scheme.additive:
            raise ConfigError(
                f"{name}: {factor.scheme} is a bias for logits and no factor; set "
                "loss.kind = logit_adjustment in place of it"
            )
        _check_params(name, factor)


def _check_params(name: str, factor: FactorConfig) -> None:
    parameters = SCHEMES[factor.scheme].parameters
    for key in factor.params:
        if key not in parameters:
            allowed = ", ".join(parameters) or "none"
            raise ConfigError(f"{name}.params.{key}: {factor.scheme} takes {allowed}")


def _is_bias(scheme: Any) -> bool:
    """Whether the recipe that a snapshot tells of one of its tensors is an additive one."""
    try:
        factors = WeightsConfig.model_validate(scheme).product
    except ValueError:
        return False
    return any(SCHEMES[factor.scheme].additive for factor in factors)


def _rise(snapshot: Snapshot, share_S: FloatArray) -> FloatArray:
    """How many times more often each token comes now than in the long run; see `emergence`."""
    short_S = snapshot.counts_HV[horizon_row("shortest", snapshot.half_lives_seconds, "weights")]
    return emergence(short_S, share_S, float(short_S.sum()), PRIOR_COUNT)


def _smoothed(counts_S: FloatArray, smoothing: float) -> FloatArray:
    p_S: FloatArray = np.maximum(probabilities(counts_S, smoothing), _SMALLEST)
    return p_S


def _padded(values_S: FloatArray, size: int, padding: float) -> Tensor:
    values_V = np.full(size, padding, np.float32)
    values_V[: len(values_S)] = values_S
    return torch.from_numpy(values_V)
