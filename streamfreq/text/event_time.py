"""The event time that a JSON field gives, in milliseconds since the epoch."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Literal

TimeUnit = Literal["ms", "s", "iso"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MAX_MS = 2**63 - 1
_INTEGER = re.compile(r"\+?[0-9]{1,19}", re.ASCII)
_NUMBER = re.compile(r"\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)


def parse_event_time_ms(value: object, unit: TimeUnit) -> int | None:
    """Milliseconds since the epoch, or None when `value` is no usable time.

    `ms` and `s` take numbers and numeric text, rounded to the nearest millisecond; `iso` takes
    ISO 8601 text (`Z`, offsets, a date alone; without an offset it is UTC; finer digits are cut
    off). Not usable: before 1970, beyond int64, not finite, a truth value, another type.

    >>> parse_event_time_ms("1604686251.5", "s"), parse_event_time_ms("2020-11-06", "iso")
    (1604686251500, 1604620800000)
    """
    time_ms = (
        _from_iso(value) if unit == "iso" else _from_number(value, 1 if unit == "ms" else 1000)
    )
    if time_ms is None or not 0 <= time_ms <= _MAX_MS:
        return None
    return time_ms


def _from_number(value: object, milliseconds: int) -> int | None:
    if isinstance(value, str):
        value = _number_in(value.strip())
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value * milliseconds
    if isinstance(value, float):
        time_ms = value * milliseconds
        return round(time_ms) if math.isfinite(time_ms) else None
    return None


def _number_in(text: str) -> int | float | None:
    """The number that `text` spells; stricter than int() and float(): no 1_000, nan, ١٢."""
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else None


def _from_iso(value: object) -> int | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value.strip().upper())
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MILLISECOND
