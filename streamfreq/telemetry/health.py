"""Is the daemon alive, and is it ready? Loops that beat, and conditions that hold or do not.

Alive: no loop has been silent for longer than it may. Ready: alive, and every condition holds.
All methods may be called from any thread.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from streamfreq.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class HealthReport:
    """One look at a Health: the reasons are empty exactly when the answer is yes."""

    not_alive: tuple[str, ...]
    not_ready: tuple[str, ...]

    @property
    def alive(self) -> bool:
        """Whether every loop has been heard of in time."""
        return not self.not_alive

    @property
    def ready(self) -> bool:
        """Whether the daemon is alive and every condition holds."""
        return not self.not_ready


class Health:
    """Loops beat, conditions are set, `report` judges.

    >>> from streamfreq.clock import ManualClock
    >>> clock = ManualClock()
    >>> health = Health(stale_after_seconds=30, clock=clock)
    >>> health.beat("poll")
    >>> health.set("redis", False, "no answer from localhost:6379")
    >>> health.report().alive, health.report().not_ready
    (True, ('redis: no answer from localhost:6379',))
    >>> clock.advance(31)
    >>> health.report().not_alive
    ('poll: no sign of life for 31 s (at most 30 s)',)
    """

    def __init__(self, stale_after_seconds: float = 60.0, clock: Clock | None = None) -> None:
        self._stale_after_seconds = stale_after_seconds
        self._clock = clock if clock is not None else SystemClock()
        self._lock = threading.Lock()
        self._beats: dict[str, tuple[float, float]] = {}
        self._conditions: dict[str, tuple[bool, str]] = {}
        self._failed: dict[str, str] = {}

    def beat(self, loop: str, stale_after_seconds: float | None = None) -> None:
        """The loop is at work; the first call makes it known.

        `stale_after_seconds` is how long it may be silent from now on (default: the object's),
        for a step that is known to take longer.
        """
        allowed = self._stale_after_seconds if stale_after_seconds is None else stale_after_seconds
        with self._lock:
            self._beats[loop] = (self._clock.monotonic(), allowed)

    def rest(self, loop: str) -> None:
        """The loop waits for work, or has ended in order: it may be silent until it beats again."""
        with self._lock:
            self._beats.pop(loop, None)

    def fail(self, loop: str, reason: str) -> None:
        """The loop has died of an error: the daemon is not alive, for good."""
        with self._lock:
            self._beats.pop(loop, None)
            self._failed[loop] = reason

    def set(self, condition: str, ok: bool, reason: str = "") -> None:
        """Say whether a condition of readiness holds, and why not."""
        with self._lock:
            self._conditions[condition] = (ok, reason)

    def report(self) -> HealthReport:
        """The state now. Without any condition set the daemon is starting: not ready."""
        with self._lock:
            now = self._clock.monotonic()
            not_alive = [f"{loop}: {reason}" for loop, reason in sorted(self._failed.items())]
            not_alive += [
                f"{loop}: no sign of life for {now - last:.0f} s (at most {allowed:g} s)"
                for loop, (last, allowed) in sorted(self._beats.items())
                if now - last > allowed
            ]
            not_ready = [
                f"{condition}: {reason or 'no'}"
                for condition, (ok, reason) in sorted(self._conditions.items())
                if not ok
            ]
            if not self._conditions:
                not_ready.append("starting")
        return HealthReport(tuple(not_alive), (*not_alive, *not_ready))
