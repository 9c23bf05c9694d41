"""Kill anything, at any moment, and see whether the counts stay right.

    python -m benchmarks.chaos --minutes 10 --seed 1 --workers 3

A real broker with two topics (24 and 6 partitions), a real store behind a proxy, 1 to `--workers`
daemons in one group, a producer that keeps producing a real stream with event times, and one fault
after the other: each kind once in a seeded order, then any of them. After each the trial waits
until a snapshot counts everything that was in the topics when the fault was over.

At the end the topics are read back and recounted by the plain libraries. Every snapshot that was
seen has to equal the recount of the records below its offsets, and nothing published may have been
taken back. Exit code 0: all of that holds. `--json` prints one line instead of the report.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.chaos_parts.cluster import JOB, TOPICS, ChaosError, Cluster, faketime_library
from benchmarks.chaos_parts.faults import KINDS, SERVICE_OUTAGES, Trial
from benchmarks.chaos_parts.feeder import Feeder, train_tokenizer
from benchmarks.chaos_parts.oracle import Oracle
from benchmarks.chaos_parts.watcher import Seen, Watcher
from streamfreq.config import TokenizerConfig
from streamfreq.tokenization import load_tokenizer

RECOVERY_SECONDS = 120.0
TOLERANCE = 1e-9
DECAYED_EVERY = 10
SHARED_STREAM = Path(__file__).resolve().parents[2] / "shared" / "data" / "hn_frontpage.jsonl.gz"


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
            "longest_publish_gap_seconds": max(self.gaps.values(), default=0.0),
            "publish_gap_seconds": self.gaps,
            "rss_mb": [round(value) for value in self.rss_mb],
            "violations": self.violations,
        }


def plan(random_: random.Random, kinds: list[str]) -> list[str]:
    """Each kind once, in an order of the seed's."""
    order = list(kinds)
    random_.shuffle(order)
    return order


def run(args: argparse.Namespace, folder: Path) -> Report:
    """The whole trial."""
    say = (lambda *_: None) if args.json else print
    faketime = faketime_library()
    kinds = [kind for kind in args.kinds if faketime or kind != "clock-jumps"]
    if kinds != args.kinds:
        say("clock-jumps is left out: libfaketime is not there, or does not work here")
    stream = args.stream
    tokenizer = args.tokenizer or train_tokenizer(stream, folder / "tokenizer")
    fingerprint = load_tokenizer(TokenizerConfig(path=str(tokenizer))).fingerprint
    report = Report()
    with Cluster(folder, tokenizer, args.workers, faketime) as cluster:
        watcher = Watcher(cluster.redis.config(), JOB, fingerprint)
        feeder = Feeder(cluster.broker.bootstrap, TOPICS, stream, args.rate, args.seed)
        for _ in range(max(1, args.workers - 1)):
            cluster.start_worker()
        watcher.start()
        feeder.start()
        trial = Trial(cluster, watcher, random.Random(args.seed), args.outage_seconds)
        try:
            for worker in cluster.workers:
                cluster.wait_until_ready(worker)
            wait_until_counted(trial)
            report.rss_mb = (max(worker.rss_mb() for worker in cluster.workers), 0.0)
            do_faults(trial, kinds, args.minutes * 60, report, say)
            feeder.end()
            wait_until_counted(trial)
        except ChaosError as error:
            cluster.violations.append(str(error))
        finally:
            feeder.end()
            finish(trial, report)
        if feeder.failed:
            report.violations.append(feeder.failed)
        say("reading back and recounting")
        judge(report, watcher.kept(), Oracle(cluster.broker, TOPICS, tokenizer))
        counted = sum(worker.figures.records for worker in cluster.everyone())
        report.reread_records = max(0, round(counted) - report.records)
    return report


def do_faults(trial: Trial, kinds: list[str], seconds: float, report: Report, say) -> None:  # type: ignore[no-untyped-def]
    """One after the other until the time is over."""
    coming = plan(trial.random, kinds)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        kind = coming.pop(0) if coming else trial.random.choice(kinds)
        begun = time.monotonic()
        KINDS[kind](trial)
        ended = time.monotonic()
        wait_until_counted(trial)
        trial.watcher.epoch_may_end = trial.watcher.nobody_knows = False
        done = Done(kind, begun, ended, time.monotonic())
        report.done.append(done)
        trial.cluster.check_alive()
        say(
            f"{len(report.done):4}  {kind:22} {ended - begun:6.1f} s, all counted after "
            f"{done.recovery_seconds:5.1f} s, {len(trial.cluster.workers)} workers, "
            f"{len(trial.watcher.violations) + len(trial.cluster.violations)} violations",
        )


def wait_until_counted(trial: Trial) -> None:
    """Until a snapshot counts all that is in the topics now; raises ChaosError after a while."""
    ends = trial.cluster.ends()
    trial.watcher.forget_the_last()
    deadline = time.monotonic() + RECOVERY_SECONDS
    while not trial.watcher.reached(ends):
        if time.monotonic() > deadline:
            raise ChaosError(f"not recovered within {RECOVERY_SECONDS:g} s")
        time.sleep(0.05)


def finish(trial: Trial, report: Report) -> None:
    """End the workers in order, and gather what they and the watcher have to say."""
    cluster = trial.cluster
    cluster.check_alive()
    oldest = min(cluster.workers, key=lambda worker: worker.started)
    report.rss_mb = (report.rss_mb[0], oldest.rss_mb())
    for worker in list(cluster.workers):
        cluster.terminate(worker)
    trial.watcher.end()
    report.conflicts = round(sum(worker.figures.conflicts for worker in cluster.everyone()))
    report.losses = round(sum(worker.figures.losses for worker in cluster.everyone()))
    report.gaps = publish_gaps(trial.watcher.kept(), report.done)
    report.violations += trial.watcher.violations + cluster.violations
    for worker in cluster.everyone():
        if "Traceback" in worker.log():
            report.violations.append(f"{worker.name} showed a traceback")


def publish_gaps(kept: list[Seen], done: list[Done]) -> dict[str, float]:
    """The longest time without a new snapshot around faults that leave the services up, by kind.

    Nothing is published while nothing is counted: where a worker died, this holds the time until
    the group gave its partitions to others.
    """
    first_seen: dict[tuple[int, int, int], float] = {}
    for seen in kept:
        snapshot = seen.snapshot
        name = (snapshot.epoch, snapshot.version, snapshot.created_at_ms)
        first_seen.setdefault(name, seen.at)
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


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--workers", type=int, default=3, help="at most so many daemons")
    parser.add_argument("--outage-seconds", type=float, default=30.0, help="of redis-away")
    parser.add_argument("--rate", type=float, default=300.0, help="records a second")
    parser.add_argument("--kinds", default="", help=f"of {', '.join(KINDS)}; default: all")
    parser.add_argument("--stream", type=Path, help="gzipped JSON lines with `ts` and `text`")
    parser.add_argument("--tokenizer", type=Path, help="a folder with a tokenizer.json")
    parser.add_argument("--keep", type=Path, help="copy the logs of the workers here")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    args.kinds = [kind for kind in args.kinds.split(",") if kind] or list(KINDS)
    unknown = set(args.kinds) - KINDS.keys()
    if unknown:
        parser.error(f"--kinds: {', '.join(sorted(unknown))}: there are {', '.join(KINDS)}")
    if args.stream is None and SHARED_STREAM.exists():
        args.stream = SHARED_STREAM
    return args


def main() -> int:
    args = parse()
    with tempfile.TemporaryDirectory(prefix="streamfreq-chaos-") as name:
        folder = Path(name)
        try:
            report = run(args, folder)
        finally:
            if args.keep is not None:
                args.keep.mkdir(parents=True, exist_ok=True)
                for log in folder.glob("*.log"):
                    shutil.copy(log, args.keep)
    if args.json:
        print(json.dumps(report.figures()))
    else:
        print_report(report)
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main())
