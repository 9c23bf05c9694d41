"""One optimizer step over all its forward passes and processes, and the optimizer itself."""

from trainer.step.optimizer import Settings, build_optimizer, build_schedule
from trainer.step.run import TrainStep

__all__ = ["Settings", "TrainStep", "build_optimizer", "build_schedule"]
