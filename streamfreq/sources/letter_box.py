"""Letters between the thread that finds them and the one that makes them safe."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from streamfreq.sources.base import DeadLetter


class LetterBox:
    """Keeps letters until they are safe, whoever puts more in meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._letters: list[DeadLetter] = []

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """Add letters."""
        with self._lock:
            self._letters.extend(letters)

    @contextmanager
    def taken(self) -> Iterator[list[DeadLetter]]:
        """What is in the box now; out of it once the body ends without an error.

        One body at a time: the caller holds a lock of its own.
        """
        with self._lock:
            letters = list(self._letters)
        yield letters
        with self._lock:
            del self._letters[: len(letters)]
