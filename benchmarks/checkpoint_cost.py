"""What commits and publications cost the store: bytes, and time, against whole checkpoints.

    python -m benchmarks.checkpoint_cost --partitions 64 --tokens 20000

Partitions with the vocabulary and the half-lives of a usual set-up count tokens of a Zipf
distribution, as one worker would between two commits, and commit to a real server; a publisher
follows them. The same is done once more with every commit written as a whole, as the way to
compare with. Bytes are those that the server itself says it received and sent; memory is the
server's and this process's. `--json` prints one line instead.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import psutil

from streamfreq.checkpoints.redis import RedisCheckpointStore
from streamfreq.clock import SystemClock
from streamfreq.codec import Chain
from streamfreq.config import SnapshotsConfig, WeightsConfig
from streamfreq.counting import Counters
from streamfreq.partition import Partition
from streamfreq.publisher import Publisher, Recipe
from streamfreq.records import RecordBatch, TokenBatch, TopicPartition
from streamfreq.redis_client import call, connect
from streamfreq.snapshots.redis import RedisPublisherLease, RedisSnapshotStore
from tests.services.redis import RedisServer

HALF_LIVES = (300.0, 3_600.0, 86_400.0)
TOKENS_PER_RECORD = 20
INTERVAL_MS = 10_000
START_MS = 1_700_000_000_000


class WholePartition(Partition):
    """Writes everything at each commit."""

    def _take_update(self, now_ms, labels):  # type: ignore[no-untyped-def]
        self._chain = Chain()
        return super()._take_update(now_ms, labels)


@dataclass
class Round:
    """One commit of every partition, or one publication."""

    sent: int
    received: int
    seconds: float


class Trial:
    """One way of writing, on a server of its own."""

    def __init__(
        self, server: RedisServer, args: argparse.Namespace, kind: type[Partition]
    ) -> None:
        self._args = args
        self._client = connect(server.config(timeout_ms=60_000))
        self._store = RedisCheckpointStore(self._client, "bench", "job")
        self._random = np.random.default_rng(args.seed)
        weights_V = 1.0 / np.arange(1, args.vocabulary + 1) ** args.exponent
        self._cumulative_V = np.cumsum(weights_V / weights_V.sum())
        self._partitions = [
            kind(TopicPartition("zipf", p), Counters(HALF_LIVES, args.vocabulary), "zipf")
            for p in range(args.partitions)
        ]
        clock = SystemClock()
        self._publisher = Publisher(
            Recipe("job", "zipf", "zipf", {"default": WeightsConfig()}),
            SnapshotsConfig(),
            self._store,
            RedisSnapshotStore(self._client, "bench", "job"),
            RedisPublisherLease(self._client, "bench", "job", "me", 3_600),
            clock,
        )
        self._next_offset = 0
        self._now_ms = START_MS

    def count(self, tokens: int) -> None:
        """So many tokens arrive in each partition within one interval."""
        records = tokens // TOKENS_PER_RECORD
        first = self._next_offset
        self._next_offset += records
        self._now_ms += INTERVAL_MS
        now_ms = self._now_ms
        for partition in self._partitions:
            draws_N = self._random.random(records * TOKENS_PER_RECORD)
            ids_N = np.searchsorted(self._cumulative_V, draws_N).astype(np.int32)
            offsets_R = np.arange(first, first + records)
            times_R = np.linspace(now_ms - INTERVAL_MS, now_ms, records).astype(np.int64)
            batch = RecordBatch(
                partition.partition, offsets_R, times_R, [b""] * records, first + records
            )
            tokens = TokenBatch(ids_N, np.full(records, TOKENS_PER_RECORD))
            partition.count(tokens, times_R, batch)

    def commit(self) -> Round:
        """All partitions, one after the other."""
        with self._measured() as round:
            for partition in self._partitions:
                partition.commit(self._store, START_MS)
        return round

    def publish(self) -> Round:
        """One snapshot."""
        with self._measured() as round:
            assert self._publisher.publish() is not None
        return round

    def memory_mb(self) -> float:
        """What the server holds."""
        return float(call(self._client, "INFO", "memory")["used_memory"]) / 1e6

    def _measured(self) -> _Measured:
        return _Measured(self._client)


class _Measured:
    def __init__(self, client) -> None:  # type: ignore[no-untyped-def]
        self._client = client

    def __enter__(self) -> Round:
        self._before = call(self._client, "INFO", "stats")
        self._begun = time.perf_counter()
        self._round = Round(0, 0, 0.0)
        return self._round

    def __exit__(self, *_: object) -> None:
        self._round.seconds = time.perf_counter() - self._begun
        after = call(self._client, "INFO", "stats")
        for name, field in (("input", "sent"), ("output", "received")):
            key = f"total_net_{name}_bytes"
            setattr(self._round, field, after[key] - self._before[key])


def run(args: argparse.Namespace, kind: type[Partition]) -> dict[str, float]:
    """Commits at every step, a publication at every third, as the default schedule has it."""
    with RedisServer(settings=["maxmemory 0"]) as server:
        trial = Trial(server, args, kind)
        commits, publications = [], []
        trial.count(args.history)
        trial.commit()
        trial.publish()
        for step in range(args.steps):
            trial.count(args.tokens)
            commits.append(trial.commit())
            if step % 3 == 2:
                publications.append(trial.publish())
        per = args.partitions * 1e3
        return {
            "commit_kb": statistics.mean(item.sent for item in commits) / per,
            "commit_kb_max": max(item.sent for item in commits) / per,
            "commit_ms": statistics.median(item.seconds for item in commits)
            * 1e3
            / args.partitions,
            "publish_read_mb": statistics.mean(item.received for item in publications) / 1e6,
            "publish_sent_mb": statistics.mean(item.sent for item in publications) / 1e6,
            "publish_ms": statistics.median(item.seconds for item in publications) * 1e3,
            "store_mb": trial.memory_mb(),
            "process_mb": psutil.Process().memory_info().rss / 1e6,
        }


ROWS = {
    "commit_kb": "sent per commit and partition, mean (kB)",
    "commit_kb_max": "the same, largest round (kB)",
    "commit_ms": "time of a commit, median (ms)",
    "publish_read_mb": "read per publication (MB)",
    "publish_sent_mb": "sent per publication (MB)",
    "publish_ms": "time of a publication, median (ms)",
    "store_mb": "memory of the store at the end (MB)",
    "process_mb": "memory of this process (MB)",
}


def table(results: dict[str, dict[str, float]]) -> Iterator[str]:
    """The two ways side by side."""
    yield f"{'':44} {'changes':>12} {'whole':>12} {'ratio':>8}"
    for name, text in ROWS.items():
        changes, whole = results["changes"][name], results["whole"][name]
        yield f"{text:44} {changes:12,.1f} {whole:12,.1f} {changes / whole:8.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=128_000)
    parser.add_argument("--tokens", type=int, default=20_000, help="per partition and commit")
    parser.add_argument(
        "--history", type=int, default=1_000_000, help="tokens per partition before the first step"
    )
    parser.add_argument("--exponent", type=float, default=1.0, help="of the Zipf distribution")
    parser.add_argument("--steps", type=int, default=24, help="commits")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = {"changes": run(args, Partition), "whole": run(args, WholePartition)}
    if args.json:
        print(json.dumps(results))
        return
    print(
        f"{args.partitions} partitions, {args.vocabulary:,} ids, {len(HALF_LIVES)} half-lives with "
        f"document counts, {args.tokens:,} tokens per partition and commit, {args.steps} commits"
    )
    for line in table(results):
        print(line)


if __name__ == "__main__":
    main()
