"""Late, unordered, missing and future timestamps, and starts by time, through a real broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from streamfreq.clock import ManualClock
from streamfreq.codec import Gap, Snapshot
from streamfreq.config import Config, RedisConfig
from streamfreq.daemon.build import build_daemon
from streamfreq.records import NO_TIMESTAMP, TopicPartition
from streamfreq.telemetry import Metrics
from streamfreq.tokenization import load_tokenizer
from tests.integration.harness import daemon_config, latest
from tests.oracle import assert_close, recount
from tests.services.kafka import KafkaBroker

pytestmark = [pytest.mark.broker, pytest.mark.redis_server]

NOW_MS = 1_750_000_000_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
YEAR_MS = 365 * 24 * HOUR_MS

Row = tuple[str, int]
"""One word, and the timestamp of its record."""


class StoppedClock(ManualClock):
    """The wall clock stands still; what waits for a time to pass goes on."""

    def monotonic(self) -> float:
        return time.monotonic()


class Bench:
    """A topic that takes any timestamp, and daemons on it whose clock stands still."""

    def __init__(self, broker: KafkaBroker, redis: RedisConfig, partitions: int = 1) -> None:
        self._broker = broker
        self._redis = redis
        self._job = f"times-{uuid.uuid4().hex[:8]}"
        limits = {f"message.timestamp.{side}.max.ms": 2**62 for side in ("after", "before")}
        self.topic = broker.create_topic(self._job, partitions, limits)
        self.clock = StoppedClock(NOW_MS)

    def put(self, rows: Sequence[Row], partition: int = 0) -> None:
        values = [word.encode() for word, _ in rows]
        stamps = [stamp for _, stamp in rows]
        self._broker.produce(self.topic, values, partition, timestamps_ms=stamps)

    def config(self, **sections: Any) -> Config:
        kafka = {"bootstrap_servers": [self._broker.bootstrap], "topics": [self.topic]}
        sections["kafka"] = {**kafka, **sections.get("kafka", {})}
        return daemon_config(self._job, redis=self._redis.model_dump(), **sections)

    def catch_up(self, config: Config) -> Metrics:
        """One daemon from start to end; what it has measured."""
        daemon = build_daemon(config, clock=self.clock)
        daemon.run(until_caught_up=True)
        return daemon.metrics


@pytest.fixture
def make_bench(kafka_broker: KafkaBroker, one_redis_config: RedisConfig) -> Callable[..., Bench]:
    return lambda partitions=1: Bench(kafka_broker, one_redis_config, partitions)


def assert_counts(config: Config, rows: Sequence[Row]) -> Snapshot:
    """The latest snapshot equals a recount of `rows`, whose times are event times."""
    snapshot = latest(config)
    tokenizer = load_tokenizer(config.tokenizer)
    ids = [[int(i) for i in tokenizer.encode_batch([word]).ids_N] for word, _ in rows]
    counts_HV, documents_HV = recount(
        [(one, stamp) for one, (_, stamp) in zip(ids, rows, strict=True)],
        snapshot.half_lives_seconds,
        snapshot.as_of_ms,
        snapshot.vocab_size,
    )
    assert_close(snapshot.counts_HV, counts_HV)
    assert snapshot.documents_HV is not None
    assert_close(snapshot.documents_HV, documents_HV)
    assert snapshot.counts_HV[-1].sum() == len(rows)
    return snapshot


def seen(metrics: Metrics, kind: str) -> float:
    return metrics.value("streamfreq_event_times_total", kind=kind)


@pytest.mark.parametrize("restart", [False, True], ids=["in one go", "restart in the middle"])
def test_bad_timestamps_count_at_the_time_that_the_design_gives_them(
    make_bench: Callable[..., Bench], restart: bool
) -> None:
    bench = make_bench()
    config = bench.config(counting={"half_lives": ["10m", "5h", "inf"]})
    first = [
        ("ontime", NOW_MS),
        ("missing", NO_TIMESTAMP),
        ("ahead", NOW_MS + YEAR_MS),
        ("allowed", NOW_MS + HOUR_MS),
        ("late", NOW_MS - 30 * HOUR_MS),
        ("ancient", 0),
    ]
    second = [
        ("unordered", NOW_MS - 5 * MINUTE_MS),
        ("unordered", NOW_MS - 50 * MINUTE_MS),
        ("unordered", NOW_MS - 20 * MINUTE_MS),
        ("missing", NO_TIMESTAMP),
        ("ahead", NOW_MS + YEAR_MS),
    ]
    bench.put(first)
    later_ms = NOW_MS
    if restart:
        metrics = bench.catch_up(config)
        assert (seen(metrics, "no_timestamp"), seen(metrics, "future")) == (1, 1)
        bench.clock.advance(600)
        later_ms += 10 * MINUTE_MS
    bench.put(second)
    metrics = bench.catch_up(config)
    counted = 1 if restart else 2
    assert (seen(metrics, "no_timestamp"), seen(metrics, "future")) == (counted, counted)
    expected = [
        *(first[0], ("missing", NOW_MS), ("ahead", NOW_MS + HOUR_MS), *first[3:]),
        *(*second[:3], ("missing", later_ms), ("ahead", later_ms + HOUR_MS)),
    ]
    snapshot = assert_counts(config, expected)
    assert snapshot.as_of_ms == later_ms + HOUR_MS
    assert snapshot.gaps == ()


@pytest.mark.parametrize("policy", ["count", "drop"])
def test_late_records_are_judged_by_the_watermark_of_the_run_before(
    make_bench: Callable[..., Bench], policy: str
) -> None:
    bench = make_bench(2)
    config = bench.config(
        counting={
            "half_lives": ["10m", "inf"],
            "max_lateness_seconds": 3600,
            "on_late": policy,
        }
    )
    bench.put([("newest", NOW_MS), ("older", NOW_MS - HOUR_MS)])
    bench.catch_up(config)
    rows = [("older", NOW_MS - HOUR_MS), ("late", NOW_MS - HOUR_MS - 1)]
    bench.put(rows)
    # The other partition has a watermark of its own.
    bench.put([("other", NOW_MS - 9 * HOUR_MS), ("other", NOW_MS - 10 * HOUR_MS)], partition=1)
    metrics = bench.catch_up(config)
    assert seen(metrics, "late") == 1
    expected = [("newest", NOW_MS), *[("older", NOW_MS - HOUR_MS)] * 2]
    expected += [("other", NOW_MS - 9 * HOUR_MS), ("other", NOW_MS - 10 * HOUR_MS)]
    expected += [rows[1]] * (policy == "count")
    snapshot = assert_counts(config, expected)
    assert sum(snapshot.offsets.values()) == 6, "a dropped record is passed like any other"


def test_a_lookback_start_reads_several_half_lives_and_records_the_gap(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(3)
    kafka = {"start": "lookback", "lookback_half_lives": 3}
    config = bench.config(kafka=kafka, counting={"half_lives": ["1m", "2m", "inf"]})
    back_ms = 3 * 2 * MINUTE_MS
    old = [("old", NOW_MS - back_ms - age) for age in (9 * HOUR_MS, MINUTE_MS, 1)]
    counted = [
        ("new", NOW_MS - back_ms),
        ("unordered", NOW_MS - HOUR_MS),
        ("new", NOW_MS - MINUTE_MS),
    ]
    bench.put([*old, *counted])
    bench.put(old, partition=1)
    bench.catch_up(config)
    snapshot = assert_counts(config, counted)
    tps = [TopicPartition(bench.topic, partition) for partition in range(3)]
    gaps = (Gap(tps[0], 0, 3), Gap(tps[1], 0, 3))
    assert snapshot.gaps == gaps
    assert dict(snapshot.offsets) == {tps[0]: 6, tps[1]: 3, tps[2]: 0}
    # The checkpoint says where to go on: however late, what follows is counted.
    bench.clock.advance(24 * 3600)
    more = [("old", NOW_MS - back_ms - 1)]
    for partition in range(3):
        bench.put(more, partition)
    bench.catch_up(config)
    snapshot = assert_counts(config, [*counted, *more * 3])
    assert snapshot.gaps == gaps
