"""What a trial has to say at the end, for people and for programs."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from dataclasses import dataclass, field

from benchmarks.chaos_parts.faults import SERVICE_OUTAGES
from benchmarks.chaos_parts.oracle import Oracle
from benchmarks.chaos_parts.watcher import Seen

TOLERANCE = 1e-9
DECAYED_EVERY = 10


@dataclass
class Done:
    """A fault that was done, and how long it took until everything was counted again."""

    kind: str
    begun: float
    ended: float
    recovered: float

    @property
    def recovery_seconds(self) -> float:
        """From when the services were back."""
        return self.recovered - self.ended


@dataclass
class Report:
    """All that is said at the end."""

    done: list[Done] = field(default_factory=list)
    records: int = 0
    tokens: int = 0
    snapshots: int = 0
    difference: float = 0.0
    decayed_relative_error: float = 0.0
    conflicts: int = 0
    losses: int = 0
    reread_records: int = 0
    gaps: dict[str, float] = field(default_factory=dict)
    zombies: dict[str, int] = field(default_factory=dict)
    ended_unbegun: int = 0
    rss_mb: tuple[float, float] = (0.0, 0.0)
    violations: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether every promise was kept."""
        exact = self.difference == 0 and self.decayed_relative_error <= TOLERANCE
        return exact and not self.violations and self.records > 0

    def figures(self) -> dict[str, object]:
        """For programs."""
        seconds = [item.recovery_seconds for item in self.done] or [0.0]
        return {
            "faults": dict(sorted(Counter(item.kind for item in self.done).items())),
            "records": self.records,
            "tokens": self.tokens,
            "snapshots": self.snapshots,
            "difference": self.difference,
            "decayed_relative_error": self.decayed_relative_error,
            "conflicts": self.conflicts,
            "checkpoint_losses": self.losses,
            "recovery_seconds": {
                "median": round(statistics.median(seconds), 2),
                "max": round(max(seconds), 2),
            },
            "reread_records": self.reread_records,
            "zombies": self.zombies,
            "ended_before_they_began": self.ended_unbegun,
            "longest_publish_gap_seconds": max(self.gaps.values(), default=0.0),
            "publish_gap_seconds": self.gaps,
            "rss_mb": [round(value) for value in self.rss_mb],
            "violations": self.violations,
        }


def judge(report: Report, kept: list[Seen], oracle: Oracle) -> None:
    """Hold every snapshot that was seen against the recount."""
    report.records, report.tokens, report.snapshots = oracle.records, oracle.tokens, len(kept)
    for number, seen in enumerate(kept):
        decayed = number % DECAYED_EVERY == 0 or number == len(kept) - 1
        difference = oracle.compare(seen.snapshot, decayed=decayed)
        report.difference += difference.counts
        report.decayed_relative_error = max(
            report.decayed_relative_error, difference.decayed_relative
        )
        wrong = difference.counts or difference.decayed_relative > TOLERANCE
        if wrong and len(report.violations) < 50:
            report.violations.append(
                f"snapshot {seen.snapshot.version} (epoch {seen.snapshot.epoch}) differs by "
                f"{difference.counts:g}, decayed by a part of {difference.decayed_relative:g}"
            )
    if not kept:
        report.violations.append("no snapshot was seen")
    else:
        final = kept[-1].snapshot
        missing = [
            str(partition)
            for partition, log in oracle.logs.items()
            if len(log.offsets_R) and final.offsets.get(partition, 0) <= log.offsets_R[-1]
        ]
        if missing:
            report.violations.append(f"not counted to the end: {' '.join(missing)}")


def publish_gaps(kept: list[Seen], done: list[Done]) -> dict[str, float]:
    """The longest time without a new snapshot around faults that leave the services up, by kind.

    Nothing is published while nothing is counted: where a worker died, this holds the time until
    the group gave its partitions to others.
    """
    first_seen: dict[tuple[int, int, int], float] = {}
    for seen in kept:
        first_seen.setdefault(seen.name, seen.at)
    outages = [(item.begun, item.recovered) for item in done if item.kind in SERVICE_OUTAGES]
    gaps = [
        (since, until)
        for since, until in itertools.pairwise(sorted(first_seen.values()))
        if not any(since < ended and begun < until for begun, ended in outages)
    ]
    longest: dict[str, float] = {}
    for item in done:
        if item.kind not in SERVICE_OUTAGES:
            around = [b - a for a, b in gaps if a < item.recovered and item.begun < b]
            longest[item.kind] = max(
                longest.get(item.kind, 0.0), round(max(around, default=0.0), 2)
            )
    return longest


def print_report(report: Report) -> None:
    """For people."""
    figures = report.figures()
    print(f"\n{len(report.done)} faults:")
    for kind, number in sorted(Counter(item.kind for item in report.done).items()):
        times = [item.recovery_seconds for item in report.done if item.kind == kind]
        gap = f", {report.gaps[kind]:.1f} s between snapshots" if kind in report.gaps else ""
        print(f"  {kind:24} {number:4}   recovered after {max(times):5.1f} s at most{gap}")
    for name, value in figures.items():
        if name not in ("faults", "violations", "publish_gap_seconds"):
            print(f"{name:>30}  {value}")
    for violation in report.violations:
        print(f"VIOLATION: {violation}")
    print("every promise was kept" if report.holds else "NOT every promise was kept")
