"""Blocks that are seen again, drawn by how rare their tokens are."""

from trainer.replay.buffer import ReplayBuffer
from trainer.replay.draws import WeightedDraws, example_weights

__all__ = ["ReplayBuffer", "WeightedDraws", "example_weights"]
