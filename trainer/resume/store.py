"""The folder of resume states: saved under a temporary name, made durable, then renamed."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamfreq.errors import ConfigError
from trainer.resume.parts import Parts, read_parts, write_parts

log = logging.getLogger("trainer.resume")

_NAME = re.compile(r"step-(\d{10})")
_TEMPORARY = re.compile(r"\.step-\d{10}\.tmp")


@dataclass(frozen=True, slots=True)
class SavedState:
    """One resume state: the step it was saved behind, and its folder."""

    step: int
    folder: Path

    @property
    def weights_folder(self) -> Path:
        """Model, optimizer, scheduler and random numbers, as accelerate wrote them."""
        return self.folder / "weights"

    def parts(self) -> dict[str, Any]:
        """The state dicts of the other parts; raises DataRefused when they are damaged."""
        return read_parts(self.folder)


class ResumeStore:
    """Resume states of one run below `folder`, the last `keep` of them.

    Only the main process calls `save` and `clean`; every process may read. `reach` is called in
    front of each numbered step of `save`, and behind the last: a place for trials to end it all.
    """

    def __init__(
        self, folder: Path, keep: int, reach: Callable[[int], None] = lambda step: None
    ) -> None:
        self._folder = folder
        self._keep = keep
        self._reach = reach

    def latest(self) -> SavedState | None:
        """The newest state that was finished; None for a run that never saved."""
        states = self.states()
        return states[-1] if states else None

    def states(self) -> list[SavedState]:
        """Every finished state, oldest first."""
        try:
            names = [path.name for path in self._folder.iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigError(f"output: {self._folder} can't be read ({error.strerror})") from error
        steps = sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))
        return [SavedState(step, self._folder / f"step-{step:010d}") for step in steps]

    def clean(self) -> None:
        """Remove what a process that died while saving has left."""
        for path in self._folder.glob(".step-*.tmp") if self._folder.is_dir() else ():
            if _TEMPORARY.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)

    def save(self, step: int, parts: Parts, write_weights: Callable[[Path], None]) -> SavedState:
        """Save the state behind `step`; a process that dies at any point leaves the one before.

        1. Make a folder under a temporary name.
        2. Write model and optimizer (`write_weights`), then the other parts.
        3. Make every file durable.
        4. Rename the folder: from here on it is the latest.
        5. Remove what is older than the last `keep`.

        Raises ConfigError when the disk is full or the folder can't be written.
        """
        try:
            return self._save(step, parts, write_weights)
        except OSError as error:
            raise ConfigError(
                f"output: the resume state of step {step} can't be written to {self._folder} "
                f"({error.strerror}); make room there or name another folder"
            ) from error

    def _save(self, step: int, parts: Parts, write_weights: Callable[[Path], None]) -> SavedState:
        temporary = self.temporary(step)
        state = SavedState(step, self._folder / f"step-{step:010d}")
        if state.folder.exists():  # no step was made since
            self._trim()
            return state
        self._reach(1)
        temporary.mkdir(parents=True, exist_ok=True)  # 1
        self._reach(2)
        weights = temporary / state.weights_folder.name
        weights.mkdir(exist_ok=True)
        write_weights(weights)  # 2
        write_parts(temporary, parts)
        self._reach(3)
        _make_durable(temporary)  # 3
        self._reach(4)
        temporary.rename(state.folder)  # 4
        _sync(self._folder)
        self._reach(5)
        self._trim()  # 5
        self._reach(6)
        log.info("saved step %d to %s", step, state.folder)
        return state

    def _trim(self) -> None:
        for old in self.states()[: -self._keep]:
            shutil.rmtree(old.folder, ignore_errors=True)

    def temporary(self, step: int) -> Path:
        """Where the state of `step` is written first."""
        return self._folder / f".step-{step:010d}.tmp"


def _make_durable(folder: Path) -> None:
    """Flush every file and folder below `folder` to the disk."""
    for path in sorted(folder.rglob("*")):
        _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
