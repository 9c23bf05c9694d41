"""Forward decay in exact integers, turned into float64 only at the very end.

A record at event time t adds 2^((t - L) / h) to each of its tokens; the landmark L is k whole
half-lives h since the epoch. Times and half-lives are whole nanoseconds in int64, so t - L is
exact for every t up to the year 2262, and the whole half-lives in it become an exponent without
rounding: moving a landmark changes no mantissa bit of any weight.

Source: Cormode, Shkapenyuk, Srivastava, Xu, "Forward Decay: A Practical Time Decay Model for
Streaming Systems", ICDE 2009. Shape legend: R records.
"""

from __future__ import annotations

import math

import numpy as np

from streamfreq.errors import ConfigError
from streamfreq.records import FloatArray, Int64Array

NS_PER_MS = 1_000_000
_NS_PER_SECOND = 1_000_000_000
_MAX_NS = int(np.iinfo(np.int64).max)

MAX_TIME_MS = _MAX_NS // NS_PER_MS
"""The latest event time that nanoseconds in int64 can hold: 2262-04-11, in ms since the epoch."""

MAX_EXPONENT = 128
"""A landmark moves when the newest record lies more half-lives than this after it.

A sum of 2^64 records then stays below 2^193, far from float64's 2^1024, and a record may still
come 1,000 half-lives late before its weight underflows to 0.
"""


def half_life_ns(seconds: float) -> int | None:
    """The half-life in whole nanoseconds; None for inf, which never decays.

    Raises ConfigError when it is not between 1 ns and 292 years.
    """
    if math.isinf(seconds) and seconds > 0:
        return None
    nanoseconds = round(seconds * _NS_PER_SECOND) if math.isfinite(seconds) else 0
    if not 1 <= nanoseconds <= _MAX_NS:
        raise ConfigError(
            f"counting.half_lives = {seconds:g}s: from 1 ns to 292 years, or inf for plain counts"
        )
    return nanoseconds


def landmark_for(newest_ms: int, half_life: int | None) -> int:
    """The landmark in whole half-lives that lies at or just before `newest_ms`; 0 for inf."""
    return 0 if half_life is None else newest_ms * NS_PER_MS // half_life


def record_weights(times_ms_R: Int64Array, half_life: int | None, landmark: int) -> FloatArray:
    """2^((t - L) / h) of each record, L = landmark * h; 1 for inf.

    Precise to 2 units in the last place for every exponent; 0 where it lies below 2^-1074.
    """
    if half_life is None:
        return np.ones(len(times_ms_R))
    elapsed_R = times_ms_R * NS_PER_MS - landmark * half_life
    whole_R, rest_R = np.divmod(elapsed_R, half_life)
    return np.ldexp(np.exp2(rest_R / half_life), whole_R)


def decay_factor(as_of_ms: int, half_life: int | None, landmark: int) -> tuple[float, int]:
    """What a stored value is multiplied by to be the count at `as_of_ms`: (mantissa, exponent).

    The factor is mantissa * 2^exponent; the mantissa lies in (0.5, 1]. Any int is a valid time.
    """
    if half_life is None:
        return 1.0, 0
    whole, rest = divmod(as_of_ms * NS_PER_MS - landmark * half_life, half_life)
    # Beyond +-3,000 every float64 is 0 or inf already; ldexp takes a C int.
    return 2.0 ** -(rest / half_life), -max(-3_000, min(3_000, whole))
