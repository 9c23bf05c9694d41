"""Exponentially decayed counts of tokens: event times, counters, merging, decay to a moment.

`Counters` needs torch, which is loaded when it is first asked for; all the rest is numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamfreq.counting.decay import MAX_TIME_MS, half_life_ns
from streamfreq.counting.device import device_memory_bytes, pick_device, probe_device
from streamfreq.counting.event_times import EventTimes, ResolvedTimes
from streamfreq.counting.states import DecayedCounts, decay_to, merge

if TYPE_CHECKING:
    from streamfreq.counting.counters import Counters

__all__ = [
    "MAX_TIME_MS",
    "Counters",
    "DecayedCounts",
    "EventTimes",
    "ResolvedTimes",
    "decay_to",
    "device_memory_bytes",
    "half_life_ns",
    "merge",
    "pick_device",
    "probe_device",
]


def __getattr__(name: str) -> Any:
    if name == "Counters":
        from streamfreq.counting.counters import Counters

        return Counters
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
