"""How a program that runs until it is told to stop is told."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Ending:
    """First signal: in order. Second: at once, and what is not saved is done again.

    Made before what it ends, which takes seconds to build: a process with the number 1, as in a
    container, would otherwise not even notice a signal in that time.
    """

    def __init__(self) -> None:
        self._stop: Callable[[], None] | None = None
        for item in _SIGNALS:
            signal.signal(item, self._first)

    def calls(self, stop: Callable[[], None]) -> None:
        """From now on the first signal calls `stop`."""
        self._stop = stop

    def _first(self, number: int, frame: FrameType | None) -> None:
        if self._stop is None:
            os._exit(0)  # nothing has begun that would need an end in order
        for item in _SIGNALS:
            signal.signal(item, lambda number, frame: os._exit(128 + number))
        self._stop()
