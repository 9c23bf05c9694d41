"""The loss: cross entropy of each token by the fused or the plain path, and what is minimised."""

from trainer.losses.model import LanguageModelLoss
from trainer.losses.objective import (
    objective_factors,
    shifted_targets,
    token_factors,
    uses_weights,
    weighted_cross_entropy,
)
from trainer.losses.path import LossPath, choose_path

__all__ = [
    "LanguageModelLoss",
    "LossPath",
    "choose_path",
    "objective_factors",
    "shifted_targets",
    "token_factors",
    "uses_weights",
    "weighted_cross_entropy",
]
