"""The daemon's loop on memory parts: trouble with one service loses nothing of the other."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

import pytest

from streamfreq.checkpoints.memory import MemoryCheckpointStore
from streamfreq.codec import Checkpoint
from streamfreq.config import Config
from streamfreq.daemon.build import build_daemon
from streamfreq.daemon.daemon import Daemon
from streamfreq.errors import ConfigError, ServiceUnavailable
from streamfreq.records import TopicPartition
from streamfreq.snapshots import open_snapshots
from streamfreq.sources.base import StartAt
from streamfreq.sources.memory import MemoryLog, MemorySource

PARTITIONS = [TopicPartition("news", n) for n in range(4)]


class FailingSeeks(MemorySource):
    """The broker is away for the first seeks."""

    failures = 2

    def seek(self, partition: TopicPartition, start: StartAt) -> None:
        if self.failures:
            self.failures -= 1
            raise ServiceUnavailable("the broker is away")
        super().seek(partition, start)


def memory_config() -> Config:
    return Config.model_validate(
        {
            "job": f"job-{uuid.uuid4().hex[:8]}",
            "kafka": {"topics": ["news"]},
            "tokenizer": {"words_buckets_log2": 8},
            "counting": {"half_lives": ["inf"], "device": "cpu"},
            "redis": {"url": f"memory://{uuid.uuid4().hex}"},
            "schedule": {"commit_interval_seconds": 0.1, "publish_interval_seconds": 0.2},
            "telemetry": {"http_port": -1},
        }
    )


def filled_log(rows: int) -> MemoryLog:
    log = MemoryLog()
    for partition in PARTITIONS:
        for row in range(rows):
            log.append(partition, f"word{row}".encode(), 1_000)
    return log


def tokens_published(config: Config) -> float:
    snapshot = open_snapshots(config.redis, config.snapshots, config.job).load()
    return 0.0 if snapshot is None else float(snapshot.tokens_H[-1])


def run(daemon: Daemon, **options: bool) -> threading.Thread:
    thread = threading.Thread(target=daemon.run, kwargs=options, daemon=True)
    thread.start()
    return thread


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_catches_up_commits_and_publishes_everything() -> None:
    config = memory_config()
    source = MemorySource(filled_log(50), PARTITIONS)
    build_daemon(config, source=source).run(until_caught_up=True)
    assert tokens_published(config) == 200
    assert source.reported == dict.fromkeys(PARTITIONS, 50)


def test_no_start_is_lost_when_store_and_broker_fail_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = memory_config()
    load, away = MemoryCheckpointStore.load, [True]

    def failing(
        self: MemoryCheckpointStore, partition: TopicPartition, newer_than: int = 0
    ) -> Checkpoint | None:
        if away[0]:
            raise ServiceUnavailable("the store is away")
        return load(self, partition, newer_than)

    monkeypatch.setattr(MemoryCheckpointStore, "load", failing)
    daemon = build_daemon(config, source=FailingSeeks(filled_log(5), PARTITIONS))
    thread = run(daemon)
    wait_for(lambda: any("checkpoint" in line for line in daemon.health.report().not_ready))
    away[0] = False
    wait_for(lambda: tokens_published(config) == 20)
    wait_for(lambda: daemon.health.report().ready)
    daemon.stop()
    thread.join(20)
    assert not thread.is_alive()


def test_the_store_that_takes_no_commit_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    config = memory_config()

    def full(self: MemoryCheckpointStore, checkpoint: Checkpoint) -> None:
        raise ServiceUnavailable("OOM command not allowed")

    monkeypatch.setattr(MemoryCheckpointStore, "commit", full)
    daemon = build_daemon(config, source=MemorySource(filled_log(5), PARTITIONS))
    with pytest.raises(ServiceUnavailable, match="read again at the next start"):
        daemon.run(until_caught_up=True)


def test_a_stop_before_the_start_ends_in_order() -> None:
    config = memory_config()
    daemon = build_daemon(config, source=MemorySource(filled_log(5), PARTITIONS))
    daemon.stop()
    daemon.run()
    assert tokens_published(config) == 0


def test_ids_beyond_the_vocabulary_are_a_mistake_at_the_start() -> None:
    config = memory_config()
    weights = {"x": {"product": [{"scheme": "rare_boost", "ids": [99_999_999]}]}}
    wrong = Config.model_validate({**config.model_dump(), "weights": weights})
    with pytest.raises(ConfigError, match="99999999"):
        build_daemon(wrong, source=MemorySource(filled_log(1), PARTITIONS))


def test_a_daemon_that_does_not_publish_shows_the_latest_snapshot_too() -> None:
    config = memory_config()
    quick = config.snapshots.model_copy(update={"lease_seconds": 0.5})
    config = config.model_copy(update={"snapshots": quick})
    log = filled_log(5)
    one = build_daemon(config, source=MemorySource(log, PARTITIONS[:2]))
    two = build_daemon(config, source=MemorySource(log, PARTITIONS[2:]))
    threads = [run(one), run(two)]
    name = "streamfreq_snapshot_version"
    wait_for(lambda: min(item.metrics.value(name) for item in (one, two)) >= 1)
    for item, thread in zip((one, two), threads, strict=True):
        item.stop()
        thread.join(20)
