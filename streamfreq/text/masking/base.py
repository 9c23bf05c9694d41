"""The port to detectors: each finds one kind of personal data in a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Span = tuple[int, int]
"""First character and the one behind the last."""


class Detector(Protocol):
    """Finds one kind of personal data.

    A span holds at least one character that no placeholder holds (a digit, `@`, `://`, `www.`), so
    masking ends. Digits are ASCII digits; letters next to a span count as its neighbours only when
    they are ASCII, since Chinese is written without spaces.
    """

    def find(self, text: str) -> Sequence[Span]:
        """Spans in order, not overlapping, each not empty and without whitespace at its ends."""
        ...
