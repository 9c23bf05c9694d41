"""Small weight inputs for tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from streamfreq.config import FactorConfig, WeightsConfig
from streamfreq.weighting import WeightInputs, weigh

HALF_LIVES = (300.0, 3600.0, math.inf)


def weight_inputs(
    *rows: Sequence[float],
    documents: Sequence[Sequence[float]] | None = None,
    records: float = 100.0,
    half_lives: tuple[float, ...] | None = None,
) -> WeightInputs:
    """One row of counts per horizon; the last is the longest."""
    counts_HV = np.array(rows, np.float64)
    return WeightInputs(
        half_lives or HALF_LIVES[-len(rows) :],
        counts_HV,
        None if documents is None else np.array(documents, np.float64),
        counts_HV.sum(axis=1),
        np.full(len(rows), records),
    )


def alone(scheme: str, params: dict[str, float] | None = None, **options: Any) -> WeightsConfig:
    """One scheme as it is: no clipping to speak of, no smoothing unless asked for."""
    factor = {key: options.pop(key) for key in ("horizon", "against", "ids") if key in options}
    if scheme == "emergence":
        factor = {"horizon": "shortest", **factor}
    return WeightsConfig(
        product=[FactorConfig(scheme=scheme, params=params or {}, **factor)],
        **{"floor": 1e-30, "cap": 1e30, "smoothing": 0.0, "min_count": 0.0, **options},
    )


def weights_of(config: WeightsConfig, inputs: WeightInputs) -> list[float]:
    return weigh(config, inputs).tolist()


def stream(inputs: WeightInputs) -> np.ndarray:
    """p: the unsmoothed distribution of the longest horizon, here always the last row."""
    longest_V = inputs.counts_HV[-1]
    return longest_V / longest_V.sum()
