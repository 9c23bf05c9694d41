"""Token weights from decayed counts: schemes with their sources, and steps that keep them safe."""

from streamfreq.weighting.pipeline import WeightInputs, is_additive, weigh
from streamfreq.weighting.registry import SCHEMES, Direction, Parameter, Scheme
from streamfreq.weighting.validation import validate

__all__ = [
    "SCHEMES",
    "Direction",
    "Parameter",
    "Scheme",
    "WeightInputs",
    "is_additive",
    "validate",
    "weigh",
]
