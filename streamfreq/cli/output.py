"""How results look: aligned tables and readable numbers for people, JSON for programs."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

SPACE = "␣"
"""Stands for a space at either end of a token, where it would not be seen."""

_GAP = "  "
_SIGNIFICANT_DIGITS = 4
_SMALLEST = 1e-9


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: its head, and whether it holds numbers (aligned to the right)."""

    head: str
    numeric: bool = True


def number(value: float | None) -> str:
    """A number with thousands separators; whole ones exactly, others to four digits or more.

    >>> number(1234567), number(1234567.8), number(0.00123456), number(1e-30), number(None)
    ('1,234,567', '1,234,568', '0.001235', '<1e-09', '-')
    """
    if value is None:
        return "-"
    if not math.isfinite(value):
        return str(value)
    if float(value).is_integer():
        return f"{int(value):,}"
    if 0 < value < _SMALLEST:
        return f"<{_SMALLEST:g}"
    whole_digits = len(str(abs(int(value)))) if abs(value) >= 1 else 0
    if whole_digits:
        return f"{value:,.{max(0, _SIGNIFICANT_DIGITS - whole_digits)}f}"
    return f"{value:.{_SIGNIFICANT_DIGITS}g}"


def percent(share: float | None) -> str:
    """A share of 1 as per cent.

    >>> percent(0.0123456), percent(0.0000012)
    ('1.235%', '0.00012%')
    """
    if share is None:
        return "-"
    value = share * 100
    return f"{value:.3f}%" if value >= 0.001 or value == 0 else f"{value:.5f}%"


def rank_change(before: int | None, now: int | None) -> str:
    """How a rank moved: up is towards 1.

    >>> rank_change(7, 3), rank_change(3, 7), rank_change(None, 3), rank_change(2, 2)
    ('+4', '-4', 'new', '=')
    """
    if before is None or now is None:
        return "new" if before is None else "gone"
    return "=" if before == now else f"{before - now:+,}"


def size(bytes_: int) -> str:
    """Bytes in the unit that fits.

    >>> size(1_234), size(3_400_000)
    ('1.2 kB', '3.4 MB')
    """
    value = float(bytes_)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def moment(ms: int) -> str:
    """A time in ms since the epoch as UTC text; `none yet` below 0."""
    if ms < 0:
        return "none yet"
    try:
        text = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ms / 1000))
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
    return f"{text}Z"


def ago(ms: int, now_ms: int) -> str:
    """How long before now.

    >>> ago(0, 90_000), ago(0, 7_200_000)
    ('90 s ago', '2.0 h ago')
    """
    seconds = (now_ms - ms) / 1000
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit} ago"
    return f"{seconds:.0f} s ago"


def visible(token: str) -> str:
    """A token's text as it can be seen: control characters escaped, spaces at the ends marked.

    >>> visible(" the"), visible("a\\n"), visible("\\x1b[31m")
    ('␣the', 'a\\\\n', '\\\\x1b[31m')
    """
    kept = token.strip(" ")
    if not kept:
        return SPACE * len(token)
    left = len(token) - len(token.lstrip(" "))
    right = len(token) - len(token.rstrip(" "))
    escaped = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in kept
    )
    return SPACE * left + escaped + SPACE * right


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> str:
    """Aligned text, by the width that characters take on a terminal (CJK ones take two)."""
    from rich.cells import cell_len

    lines = [[column.head for column in columns], *map(list, rows)]
    widths = [max(cell_len(line[index]) for line in lines) for index in range(len(columns))]
    texts = []
    for line in lines:
        cells = []
        for column, cell, width in zip(columns, line, widths, strict=True):
            blank = " " * (width - cell_len(cell))
            cells.append(blank + cell if column.numeric else cell + blank)
        texts.append(_GAP.join(cells).rstrip())
    return "\n".join(texts)


def fields(pairs: Mapping[str, str]) -> str:
    """Names and values, one pair a line."""
    width = max(map(len, pairs), default=0)
    return "\n".join(f"{name:<{width}}{_GAP}{value}".rstrip() for name, value in pairs.items())


def print_json(value: Any) -> None:
    """One JSON value on one line of stdout; plain ASCII, so that it survives any terminal."""
    click.echo(json.dumps(value, allow_nan=False))


def note(message: str) -> None:
    """A remark for people, on stderr, so that stdout stays what was asked for."""
    click.echo(message, err=True)
