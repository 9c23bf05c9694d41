"""How long to wait before a service is asked again."""

from __future__ import annotations

import random

MAX_SECONDS = 10.0


class Backoff:
    """Waits double from half a second to ten, with jitter, so that workers don't come in step.

    >>> backoff = Backoff()
    >>> 0.25 <= backoff.next_seconds() <= 0.5
    True
    """

    def __init__(self) -> None:
        self._failures = 0

    def next_seconds(self) -> float:
        """After one more failure: between half of the present longest wait and all of it."""
        self._failures += 1
        return min(MAX_SECONDS, 0.25 * 2.0 ** min(self._failures, 10)) * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """The service answered."""
        self._failures = 0
