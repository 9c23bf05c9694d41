"""Event times that counting can trust, made of the timestamps that records carry.

Shape legend: R records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from streamfreq.config import CountingConfig
from streamfreq.counting.decay import MAX_TIME_MS
from streamfreq.records import BoolArray, Int64Array


@dataclass(frozen=True, slots=True)
class ResolvedTimes:
    """Event times of R records in ms, all in [0, MAX_TIME_MS], and which records to count.

    tallies: how many records had `no_timestamp`, were in the `future`, were `late`; the late ones
    that are dropped are those that `keep_R` leaves out.
    """

    times_ms_R: Int64Array
    keep_R: BoolArray
    tallies: dict[str, int]


class EventTimes:
    """Applies the timestamp rules of the configuration, the same for any cut into batches.

    1. A missing or negative timestamp becomes the time of ingestion (`no_timestamp`).
    2. One further ahead of the clock than `max_future_skew_seconds` becomes the clock plus that
       (`future`); else a single record would move the watermark and decay everything else away.
    3. One further than `max_lateness_seconds` behind the latest event time before it is `late`,
       and counted or dropped by `on_late`.

    A max_future_skew of 1,000 of the shortest half-lives or more lets one record in the
    (permitted) future decay the present to nothing in that horizon.
    """

    def __init__(self, config: CountingConfig) -> None:
        self._max_skew_ms = _whole_ms(config.max_future_skew_seconds)
        self._max_lateness_ms = _whole_ms(config.max_lateness_seconds)
        self._count_late = config.on_late == "count"

    def resolve(self, timestamps_ms_R: Int64Array, watermark_ms: int, now_ms: int) -> ResolvedTimes:
        """Event times of consecutive records of one partition, whose watermark so far is given.

        `watermark_ms` is -1 when nothing has been counted. Within the batch the watermark runs
        with the records, so each is judged by those before it and by nothing else.
        """
        now_ms = max(0, min(now_ms, MAX_TIME_MS))
        limit_ms = min(now_ms + self._max_skew_ms, MAX_TIME_MS)
        missing_R = timestamps_ms_R < 0
        future_R = timestamps_ms_R > limit_ms
        times_ms_R = np.where(missing_R, now_ms, np.minimum(timestamps_ms_R, limit_ms))
        watermarks_ms_R = np.maximum(np.maximum.accumulate(times_ms_R), watermark_ms)
        late_R = watermarks_ms_R - times_ms_R > self._max_lateness_ms
        return ResolvedTimes(
            times_ms_R.astype(np.int64, copy=False),
            np.ones(len(times_ms_R), np.bool_) if self._count_late else ~late_R,
            {
                "no_timestamp": int(np.count_nonzero(missing_R)),
                "future": int(np.count_nonzero(future_R)),
                "late": int(np.count_nonzero(late_R)),
            },
        )


def _whole_ms(seconds: float) -> int:
    """Whole ms of a bound on differences of whole ms; inf becomes more than any difference."""
    return math.floor(min(seconds * 1000, MAX_TIME_MS))
