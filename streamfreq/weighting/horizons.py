"""The names by which a factor calls a horizon, made into a row of the counts."""

from __future__ import annotations

import math

from streamfreq.config import format_duration, parse_duration
from streamfreq.errors import ConfigError


def horizon_row(name: str, half_lives_seconds: tuple[float, ...], field: str) -> int:
    """The row of `shortest`, `longest` (inf included), or a half-life as configured, like 1h.

    Raises ConfigError, naming `field`, when no such half-life is configured.
    """
    if name == "shortest":
        return half_lives_seconds.index(min(half_lives_seconds))
    if name == "longest":
        return half_lives_seconds.index(max(half_lives_seconds))
    try:
        wanted = parse_duration(name)
    except ValueError:
        wanted = math.nan
    for row, seconds in enumerate(half_lives_seconds):
        if seconds == wanted or math.isclose(seconds, wanted, rel_tol=1e-9):
            return row
    configured = ", ".join(format_duration(seconds) for seconds in half_lives_seconds)
    raise ConfigError(
        f'{field} = "{name}": one of shortest, longest, or a configured half-life ({configured})'
    )
