"""Named points in the numbered steps of a commit and a publication, where a trial may end it all.

Off, and an empty call, unless the environment variable STREAMFREQ_FAULTS names a file when the
process starts. A line `POINT ACTION` in that file arms one point, `commit.2 kill` for instance:
the process that next reaches the point removes the file, then kills itself (`kill`) or stops
itself until somebody sends SIGCONT (`stop`). Point N of a list of steps lies in front of step N;
one more lies behind the last.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

VARIABLE = "STREAMFREQ_FAULTS"

POINTS = (
    *(f"commit.{step}" for step in range(1, 5)),
    *(f"publish.{step}" for step in range(1, 8)),
)
"""Every point that `reach` is called with."""

_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


Reach = Callable[[str], None]


def _nothing(point: str) -> None:
    """No fault is ever armed."""


def _armed(file: Path, point: str) -> None:
    try:
        wanted, action = file.read_text().split()
        if wanted != point or action not in _SIGNALS:
            return
        file.unlink()
    except (OSError, ValueError):
        return  # nothing is armed, or was disarmed this moment
    os.kill(os.getpid(), _SIGNALS[action])


def _make(name: str | None) -> Reach:
    if not name:
        return _nothing
    file = Path(name)
    return lambda point: _armed(file, point)


reach: Reach = _make(os.environ.get(VARIABLE))
"""Called at each point with its name."""
