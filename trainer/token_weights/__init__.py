"""From a snapshot to the tables per token id that loss, sampler and monitors use."""

from trainer.token_weights.tables import TokenTables

__all__ = ["TokenTables"]
