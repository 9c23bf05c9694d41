"""Curves for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainer.monitors.facts import Interval


class TensorBoardWriter:
    """Writes every number of an interval as a point of its curve.

    Points behind the step that a run begins with, which a crash has left, are hidden.
    """

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        make: Any = SummaryWriter
        self._writer = make(str(folder), purge_step=step + 1)

    def add(self, interval: Interval) -> None:
        """One point on each curve that has a value."""
        for name, value in curves(interval).items():
            self._writer.add_scalar(name, value, interval.step)
        self._writer.flush()

    def close(self) -> None:
        """Flush and let go of the file."""
        self._writer.close()


def curves(interval: Interval) -> dict[str, float]:
    """The curves by name, those without a value left out."""
    single = {
        "loss/plain": interval.plain,
        "loss/weighted": interval.weighted,
        "loss/prequential": interval.prequential,
        "step/learning_rate": interval.learning_rate,
        "step/gradient_norm": interval.gradient_norm,
        "step/skipped": float(interval.skipped_steps),
        "weights/effective_sample_size": interval.effective_sample_size,
        "weights/strength": interval.strength,
        "snapshot/version": float(interval.version),
        "snapshot/age_seconds": interval.snapshot_age_seconds,
        "speed/tokens_per_second": interval.tokens_per_second,
        "speed/waiting": interval.waiting,
        "stream/records": float(interval.records),
        "stream/bad_records": float(interval.bad_records),
        "stream/lag_records": None if interval.lag_records is None else float(interval.lag_records),
        "replay/blocks": float(interval.replay_blocks),
    }
    found = {name: value for name, value in single.items() if value is not None}
    found |= {f"prequential/{name}": band.loss for name, band in interval.prequential_bands.items()}
    found |= {f"bands/{name}": band.loss for name, band in interval.bands.items()}
    found |= {f"seconds/{name}": value for name, value in interval.seconds.items()}
    return found
