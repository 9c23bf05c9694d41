"""One readable line per log interval."""

from __future__ import annotations

import logging

from trainer.monitors.bands import EMERGING, TAIL
from trainer.monitors.facts import Interval

log = logging.getLogger("trainer.progress")


def tell(interval: Interval) -> None:
    """Log the line."""
    log.info("%s", line(interval))


def line(interval: Interval) -> str:
    """Step, losses, bands, speed, snapshot, lag; what is out of order stands at the end."""
    parts = [f"step {interval.step:,}", _losses(interval)]
    shown = interval.prequential_bands or interval.bands
    bands = [f"{name} {shown[name].loss:.2f}" for name in (TAIL, EMERGING) if name in shown]
    if bands and interval.version:
        parts.append(" ".join(bands))
    parts.append(
        f"{_short(interval.tokens_per_second)} tok/s, waiting {100 * interval.waiting:.0f} %"
    )
    parts.append(_snapshot(interval))
    if interval.lag_records is not None:
        parts.append(f"lag {interval.lag_records:,} records")
    if interval.strength != 1.0:
        parts.append(f"strength {interval.strength:.2g}")
    if interval.skipped_steps:
        parts.append(f"{interval.skipped_steps} steps skipped")
    if interval.bad_records:
        parts.append(f"{interval.bad_records:,} bad records")
    return " | ".join(parts)


def _losses(interval: Interval) -> str:
    if interval.plain is None:
        return "no loss"
    text = f"loss {interval.plain:.3f}"
    if interval.weighted is not None:
        text += f" (weighted {interval.weighted:.3f}"
        text += "" if interval.prequential is None else f", new {interval.prequential:.3f}"
        text += ")"
    return text


def _snapshot(interval: Interval) -> str:
    away = ", store away" if interval.snapshot_away else ""
    if not interval.version and interval.snapshot_age_seconds is None:
        return f"no snapshot yet{away}"
    age = interval.snapshot_age_seconds
    told = f"snapshot {interval.version}" if interval.version else "neutral weights"
    if age is not None:
        told += f", {age:,.0f} s old"
    return told + (", stale" if interval.snapshot_stale else "") + away


def _short(value: float) -> str:
    return f"{value / 1000:.1f}k" if value >= 1000 else f"{value:.0f}"
