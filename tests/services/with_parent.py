"""Child processes that end with the thread that started them, even when that one is killed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

# Asks the kernel to kill the process when its parent ends, and becomes the command. A function that
# runs between fork and exec would do the same, but is not safe in a process with threads.
_BECOME = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def with_parent(command: Sequence[str | Path]) -> list[str]:
    """The command line that runs `command`, whose first word is a path, as such a child (Linux).

    The process keeps its id, and its environment is the command's. On other systems it is an
    ordinary child.
    """
    begin = [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid())]
    return [*begin, *map(str, command)]
