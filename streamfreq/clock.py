"""Time as a port: the daemon asks a Clock, tests move a ManualClock by hand."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for stamps, monotonic time for durations."""

    def now_ms(self) -> int:
        """Wall-clock time in ms since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Wall-clock time in ms since the epoch, UTC."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told to.

    >>> clock = ManualClock(start_ms=1_000)
    >>> clock.advance(2.5)
    >>> clock.now_ms()
    3500
    """

    def __init__(self, start_ms: int = 0) -> None:
        self._now_ms = start_ms
        self._monotonic = 0.0

    def advance(self, seconds: float) -> None:
        """Move both clocks forward by `seconds`."""
        self._now_ms += round(seconds * 1000)
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Move only the wall clock, forward or back, as an NTP step does."""
        self._now_ms += round(seconds * 1000)

    def now_ms(self) -> int:
        """Wall-clock time in ms since the epoch, UTC."""
        return self._now_ms

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        return self._monotonic
