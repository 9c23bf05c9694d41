"""A training run: the loop, its wiring, its resume states."""

from trainer.worker.build import Trainee, build_worker, make_trainee
from trainer.worker.worker import Worker

__all__ = ["Trainee", "Worker", "build_worker", "make_trainee"]
