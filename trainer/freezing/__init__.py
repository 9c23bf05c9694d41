"""What trains, and how fast; decided before the model is wrapped for several processes."""

from trainer.freezing.groups import parameter_groups
from trainer.freezing.plan import Plan, prepare
from trainer.freezing.table import trainable_table
from trainer.freezing.unfreezing import GradualUnfreezing, scale_embedding_gradient

__all__ = [
    "GradualUnfreezing",
    "Plan",
    "parameter_groups",
    "prepare",
    "scale_embedding_gradient",
    "trainable_table",
]
