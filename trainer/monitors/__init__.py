"""What is measured while training, and where it is shown."""

from trainer.monitors.facts import Interval, RunFacts
from trainer.monitors.monitors import Monitors

__all__ = ["Interval", "Monitors", "RunFacts"]
