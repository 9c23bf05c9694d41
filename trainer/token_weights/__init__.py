"""From a snapshot to the tables per token id that loss, sampler and monitors use."""

from trainer.token_weights.live import TokenWeights
from trainer.token_weights.puller import Puller
from trainer.token_weights.recipe import Recipe, check_recipe
from trainer.token_weights.tables import TokenTables
from trainer.token_weights.terms import Terms

__all__ = ["Puller", "Recipe", "Terms", "TokenTables", "TokenWeights", "check_recipe"]
