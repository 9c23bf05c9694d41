"""Blocks that are seen again, drawn by how rare their tokens are."""

from trainer.replay.buffer import ReplayBuffer

__all__ = ["ReplayBuffer"]
