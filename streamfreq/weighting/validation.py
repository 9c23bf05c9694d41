"""Everything about the weights' configuration that can be known to be wrong before counting."""

from __future__ import annotations

from collections.abc import Mapping

from streamfreq.config import FactorConfig, WeightsConfig
from streamfreq.errors import ConfigError
from streamfreq.weighting.horizons import horizon_row
from streamfreq.weighting.registry import SCHEMES


def validate(
    weights: Mapping[str, WeightsConfig],
    half_lives_seconds: tuple[float, ...],
    documents: bool,
    vocab_size: int | None = None,
) -> None:
    """Raise ConfigError for the first thing that `weigh` could not do.

    Unknown parameters or values out of range, horizons that are not configured, idf without
    document counts, an additive scheme as one factor among others, options without effect.
    """
    for name, config in weights.items():
        validate_one(f"weights.{name}", config, half_lives_seconds, documents)
        highest = max((id_ for factor in config.product for id_ in factor.ids), default=-1)
        if vocab_size is not None and highest >= vocab_size:
            raise ConfigError(
                f"weights.{name}: a list of ids holds {highest}, but the tokenizer has "
                f"{vocab_size} ids (0 to {vocab_size - 1})"
            )


def validate_one(
    field: str, config: WeightsConfig, half_lives_seconds: tuple[float, ...], documents: bool
) -> None:
    """`validate` for one weights tensor, called `field` in messages."""
    for index, factor in enumerate(config.product):
        name = f"{field}.product[{index}]"
        scheme = SCHEMES[factor.scheme]
        if scheme.additive and len(config.product) > 1:
            raise ConfigError(
                f"{name}: {factor.scheme} is a bias to add to logits and no factor; "
                "give it a weights tensor of its own"
            )
        if scheme.needs_documents and not documents:
            raise ConfigError(f"{name}: {factor.scheme} needs counting.documents = true")
        _check_params(name, factor)
        _check_horizons(name, factor, half_lives_seconds)
        _check_ids(name, factor)


def _check_params(name: str, factor: FactorConfig) -> None:
    parameters = SCHEMES[factor.scheme].parameters
    for key, value in factor.params.items():
        if key not in parameters:
            allowed = ", ".join(parameters) or "none"
            raise ConfigError(f"{name}.params.{key}: {factor.scheme} takes {allowed}")
        low, high = parameters[key].low, parameters[key].high
        if not low <= value <= high:
            raise ConfigError(f"{name}.params.{key} = {value:g}: from {low:g} to {high:.15g}")


def _check_horizons(name: str, factor: FactorConfig, half_lives_seconds: tuple[float, ...]) -> None:
    row = horizon_row(factor.horizon, half_lives_seconds, f"{name}.horizon")
    against = horizon_row(factor.against, half_lives_seconds, f"{name}.against")
    if factor.scheme != "emergence":
        if factor.against != "longest":
            raise ConfigError(f"{name}.against: only emergence compares two horizons")
    elif half_lives_seconds[row] > half_lives_seconds[against]:
        raise ConfigError(
            f"{name}: emergence compares a short horizon with a long one; horizon "
            f'"{factor.horizon}" is longer than against "{factor.against}"'
        )


def _check_ids(name: str, factor: FactorConfig) -> None:
    if not factor.ids:
        return
    if factor.scheme != "rare_boost":
        raise ConfigError(f"{name}.ids: only rare_boost takes a list of token ids")
    if "mass" in factor.params:
        raise ConfigError(f"{name}.params.mass: has no effect beside ids; leave one of them out")
    if min(factor.ids) < 0:
        raise ConfigError(f"{name}.ids: {min(factor.ids)} is no token id")
