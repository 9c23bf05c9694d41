"""Durations as people write them: 30s, 5m, 1.5h, 7d, inf, or a plain number of seconds."""

from __future__ import annotations

import math
import re

_UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PATTERN = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(ms|s|m|h|d|w)?\s*", re.ASCII)


def parse_duration(value: object) -> float:
    """Seconds, from text or a number; `inf` is allowed.

    >>> parse_duration("5m"), parse_duration("1.5h"), parse_duration("inf"), parse_duration(7)
    (300.0, 5400.0, inf, 7.0)

    Raises ValueError with what is allowed.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str) and value.strip().lower() == "inf":
        seconds = math.inf
    elif isinstance(value, str) and (match := _PATTERN.fullmatch(value)):
        seconds = float(match[1]) * _UNITS[match[2] or ""]
        if math.isinf(seconds):
            raise ValueError("a duration that is not too large for a number, or inf")
    else:
        raise ValueError("a duration like 30s, 5m, 1h, 7d, a number of seconds, or inf")
    if not seconds > 0:
        raise ValueError("a duration above 0")
    return seconds


def format_duration(seconds: float) -> str:
    """The shortest of the usual spellings, exact.

    >>> format_duration(3600.0), format_duration(90.0), format_duration(float("inf"))
    ('1h', '90s', 'inf')
    """
    if math.isinf(seconds):
        return "inf"
    for unit in ("w", "d", "h", "m"):
        if seconds >= _UNITS[unit] and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:.0f}{unit}"
    short = f"{seconds:g}"
    return f"{short if float(short) == seconds else repr(seconds)}s"
