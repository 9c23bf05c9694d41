"""Kill anything, at any moment, and see whether the counts stay right.

    python -m benchmarks.chaos --minutes 10 --seed 1 --workers 3

A real broker with two topics (24 and 6 partitions), a real store behind a proxy, 1 to `--workers`
daemons in one group, a producer that keeps producing a real stream with event times, and one fault
after the other: each kind once in a seeded order, then any of them. After each the trial waits
until a snapshot counts everything that was in the topics when the fault was over.

At the end the topics are read back and recounted by the plain libraries. Every snapshot that was
seen has to equal the recount of the records below its offsets, and nothing published may have been
taken back. Exit code 0: all of that holds. `--json` prints one line instead of the report.

Workers tell conflicts and records read in their metrics, which are read every half second and right
before an ordinary kill: what a worker that died did after that is missing in those two figures.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from benchmarks.chaos_parts.cluster import JOB, TOPICS, ChaosError, Cluster, faketime_library
from benchmarks.chaos_parts.faults import KINDS, Trial
from benchmarks.chaos_parts.feeder import Feeder, train_tokenizer
from benchmarks.chaos_parts.oracle import Oracle
from benchmarks.chaos_parts.report import Done, Report, judge, print_report, publish_gaps
from benchmarks.chaos_parts.watcher import Watcher
from streamfreq.config import TokenizerConfig
from streamfreq.tokenization import load_tokenizer

RECOVERY_SECONDS = 120.0
SHARED_STREAM = Path(__file__).resolve().parents[2] / "shared" / "data" / "hn_frontpage.jsonl.gz"


def plan(random_: random.Random, kinds: list[str]) -> list[str]:
    """Each kind once, in an order of the seed's."""
    order = list(kinds)
    random_.shuffle(order)
    return order


def run(args: argparse.Namespace, folder: Path) -> Report:
    """The whole trial."""
    say: Callable[[str], None] = (lambda line: None) if args.json else print_now
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
            seconds = args.minutes * 60
            do_faults(trial, kinds, seconds, report, say, whole_round=args.whole_round)
            feeder.end()
            wait_until_counted(trial)
        except ChaosError as error:
            cluster.violations.append(str(error))
        except BaseException:
            feeder.abandon()
            raise
        feeder.end()
        finish(trial, report)
        if feeder.failed:
            report.violations.append(feeder.failed)
        say("reading back and recounting")
        judge(report, watcher.kept(), Oracle(cluster.broker, TOPICS, tokenizer))
        counted = sum(worker.figures.records for worker in cluster.everyone())
        report.reread_records = max(0, round(counted) - report.records)
    return report


def do_faults(
    trial: Trial,
    kinds: list[str],
    seconds: float,
    report: Report,
    say: Callable[[str], None],
    *,
    whole_round: bool,
) -> None:
    """One after the other until the time is over, and with `whole_round` each kind was done."""
    coming = plan(trial.random, kinds)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline or (whole_round and coming):
        kind = coming.pop(0) if coming else trial.random.choice(kinds)
        begun = time.monotonic()
        KINDS[kind](trial)
        ended = time.monotonic()
        wait_until_counted(trial)
        trial.watcher.epoch_may_end = trial.watcher.nobody_knows = False
        done = Done(kind, begun, ended, time.monotonic())
        report.done.append(done)
        trial.judge_zombies()
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
        if all(worker.exit_code is not None for worker in trial.cluster.workers):
            raise ChaosError("not recovered: every worker has ended")
        if time.monotonic() > deadline:
            raise ChaosError(f"not recovered within {RECOVERY_SECONDS:g} s")
        time.sleep(0.05)


def finish(trial: Trial, report: Report) -> None:
    """End the workers in order, and gather what they and the watcher have to say."""
    cluster = trial.cluster
    cluster.check_alive()
    for oldest in sorted(cluster.workers, key=lambda worker: worker.started)[:1]:
        report.rss_mb = (oldest.first_rss_mb, oldest.rss_mb())
    report.ended_unbegun = cluster.ended_unbegun
    report.zombies = {
        "stopped": len(trial.zombies),
        "noticed": sum(zombie.noticed() for zombie in trial.zombies),
        "commits_refused": sum(zombie.refused() for zombie in trial.zombies),
    }
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


def print_now(line: str) -> None:
    """A line at once, into a pipe too."""
    print(line, flush=True)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--workers", type=int, default=3, help="at most so many daemons")
    parser.add_argument("--outage-seconds", type=float, default=30.0, help="of redis-away")
    parser.add_argument("--rate", type=float, default=300.0, help="records a second")
    parser.add_argument("--kinds", default="", help=f"of {', '.join(KINDS)}; default: all")
    parser.add_argument("--whole-round", action="store_true", help="each kind once at least")
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


def end(number: int, frame: FrameType | None) -> None:
    """As Ctrl-C, so that everything that was started ends."""
    raise KeyboardInterrupt


def new_place(seed: int) -> Path:
    """A folder for the logs of a trial that did not hold."""
    return Path(tempfile.mkdtemp(prefix=f"chaos-seed-{seed}-"))


def keep_logs(folder: Path, place: Path) -> None:
    """Copy what the workers said, and say where it is."""
    place.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        shutil.copy(log, place)
    print(f"the workers' logs are in {place}", file=sys.stderr)


def main() -> int:
    args = parse()
    signal.signal(signal.SIGTERM, end)
    with tempfile.TemporaryDirectory(prefix="streamfreq-chaos-") as name:
        folder = Path(name)
        try:
            report = run(args, folder)
        except KeyboardInterrupt:
            print("broken off", file=sys.stderr)
            return 130
        except BaseException:
            keep_logs(folder, args.keep or new_place(args.seed))
            raise
        if args.keep is not None or not report.holds:
            keep_logs(folder, args.keep or new_place(args.seed))
    if args.json:
        print(json.dumps(report.figures()))
    else:
        print_report(report)
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main())
