"""Through a real topic with six partitions and real stores, the counts equal a plain recount."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamfreq.codec import Snapshot
from streamfreq.config import Config, RedisConfig
from streamfreq.records import TopicPartition
from streamfreq.snapshots import read_snapshot_file
from tests.integration.harness import (
    RunningDaemon,
    catch_up,
    daemon_config,
    latest,
    read_stream,
    spread,
)
from tests.integration.reference import PAIRS, reference_encoder
from tests.oracle import assert_close, recount
from tests.services.kafka import KafkaBroker
from tests.unit.cli.samples import invoke

pytestmark = [pytest.mark.broker, pytest.mark.shared_data, pytest.mark.redis_server]

PARTITIONS = 6
NO_CLEANING = {"normalize": "none", "strip_control": False, "collapse_whitespace": False}


class Topic:
    """A topic filled with rows, and what was put into each partition."""

    def __init__(self, broker: KafkaBroker, name: str) -> None:
        self.broker = broker
        self.name = name
        self.rows: dict[int, list[dict[str, Any]]] = {p: [] for p in range(PARTITIONS)}

    def put(self, rows: Sequence[dict[str, Any]], seed: int = 0) -> None:
        """Spread the rows over the partitions at random, so that partitions differ in length."""
        chooser = random.Random(seed)
        parts: dict[int, list[dict[str, Any]]] = {p: [] for p in range(PARTITIONS)}
        for row in rows:
            parts[chooser.choice([0, 0, 0, 1, 1, 2, 3, 4, 5])].append(row)
        for partition, part in parts.items():
            values = [json.dumps({"ts": row["ts"], "text": row["text"]}).encode() for row in part]
            self.broker.produce(self.name, values, partition)
            self.rows[partition].extend(part)

    def below(self, offsets: dict[TopicPartition, int]) -> list[dict[str, Any]]:
        """The rows below these next offsets."""
        return [
            row
            for partition, end in offsets.items()
            for row in self.rows[partition.partition][:end]
        ]

    @property
    def all_rows(self) -> list[dict[str, Any]]:
        return [row for rows in self.rows.values() for row in rows]


@pytest.fixture
def topic(kafka_broker: KafkaBroker, new_topic: Callable[..., str]) -> Topic:
    return Topic(kafka_broker, new_topic(partitions=PARTITIONS))


def config_for(topic: Topic, redis: RedisConfig, tokenizer: Path, **sections: Any) -> Config:
    return daemon_config(
        kafka={"bootstrap_servers": [topic.broker.bootstrap], "topics": [topic.name]},
        redis=redis.model_dump(),
        value={"format": "json", "time_field": "ts"},
        text=NO_CLEANING,
        tokenizer={"path": str(tokenizer)},
        **sections,
    )


def assert_counts(snapshot: Snapshot, rows: Sequence[dict[str, Any]], tokenizer: Path) -> None:
    """The snapshot's tensors equal a recount of `rows` by the reference library."""
    ids = reference_encoder(tokenizer)([row["text"] for row in rows])
    counts_HV, documents_HV = recount(
        zip(ids, (row["ts"] for row in rows), strict=True),
        snapshot.half_lives_seconds,
        snapshot.as_of_ms,
        snapshot.vocab_size,
    )
    plain = snapshot.half_lives_seconds.index(float("inf"))
    np.testing.assert_array_equal(snapshot.counts_HV[plain], counts_HV[plain])
    assert_close(snapshot.counts_HV, counts_HV)
    assert snapshot.documents_HV is not None
    np.testing.assert_array_equal(snapshot.documents_HV[plain], documents_HV[plain])
    assert_close(snapshot.documents_HV, documents_HV)
    assert snapshot.records_H[plain] == len(rows)
    assert snapshot.tokens_H[plain] == sum(map(len, ids))


@pytest.mark.parametrize(("stream", "tokenizer"), PAIRS)
def test_every_stream_and_tokenizer(
    topic: Topic, one_redis_config: RedisConfig, shared_dir: Path, stream: str, tokenizer: str
) -> None:
    path = shared_dir / "tokenizers" / tokenizer
    rows = spread(read_stream(shared_dir / "data" / f"{stream}.jsonl.gz", 60_000), 37)[:1_500]
    topic.put(rows)
    config = config_for(topic, one_redis_config, path)
    catch_up(config)
    snapshot = latest(config)
    assert sum(snapshot.offsets.values()) == len(rows)
    assert_counts(snapshot, rows, path)


@pytest.mark.parametrize(("stream", "tokenizer"), PAIRS)
def test_every_stream_and_tokenizer_from_files(
    tmp_path: Path, shared_dir: Path, stream: str, tokenizer: str
) -> None:
    path = shared_dir / "tokenizers" / tokenizer
    rows = spread(read_stream(shared_dir / "data" / f"{stream}.jsonl.gz", 60_000), 37)[:1_500]
    file, out = tmp_path / "rows.jsonl", tmp_path / "counts.safetensors"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--text-field", "text", "--time-field", "ts", "--no-clean", "--top", "1"]
    options += ["--half-life", "1h", "--half-life", "720h", "--half-life", "inf"]
    done = invoke("count", file, "--tokenizer", path, "--out", out, *options)
    assert done.exit_code == 0, done.output
    assert_counts(read_snapshot_file(out), rows, path)


@pytest.fixture
def gpt2(shared_dir: Path) -> Path:
    return shared_dir / "tokenizers" / "gpt2"


@pytest.fixture
def rows(shared_dir: Path) -> list[dict[str, Any]]:
    return read_stream(shared_dir / "data" / "hn_frontpage.jsonl.gz", 6_000)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_number_of_workers_does_not_matter(
    topic: Topic,
    one_redis_config: RedisConfig,
    gpt2: Path,
    rows: list[dict[str, Any]],
    workers: int,
) -> None:
    topic.put(rows)
    config = config_for(topic, one_redis_config, gpt2)
    catch_up(*[config] * workers)
    assert_counts(latest(config), rows, gpt2)


def test_restarts_and_late_records_do_not_matter(
    topic: Topic, one_redis_config: RedisConfig, gpt2: Path, rows: list[dict[str, Any]]
) -> None:
    config = config_for(topic, one_redis_config, gpt2)
    shuffled = random.Random(3).sample(rows, len(rows))
    for begin in range(0, len(rows), 1_500):
        topic.put(shuffled[begin : begin + 1_500], seed=begin)
        catch_up(config)
    assert_counts(latest(config), rows, gpt2)


def test_a_snapshot_in_mid_stream_counts_exactly_the_records_below_its_offsets(
    topic: Topic, one_redis_config: RedisConfig, gpt2: Path, rows: list[dict[str, Any]]
) -> None:
    config = config_for(
        topic,
        one_redis_config,
        gpt2,
        schedule={"commit_interval_seconds": 0.05, "publish_interval_seconds": 0.1},
        snapshots={"retain": 50, "lease_seconds": 2.0},
    )
    daemon = RunningDaemon(config)
    for begin in range(0, len(rows), 500):
        topic.put(rows[begin : begin + 500], seed=begin)
    daemon.stop()
    from streamfreq.snapshots import open_snapshots

    store = open_snapshots(config.redis, config.snapshots, config.job)
    versions = [info.version for info in store.infos()]
    assert len(versions) > 1
    for version in {versions[0], versions[len(versions) // 2], versions[-1]}:
        snapshot = store.load(version)
        assert snapshot is not None
        assert_counts(snapshot, topic.below(dict(snapshot.offsets)), gpt2)


def test_two_workers_that_both_believe_to_own_every_partition(
    topic: Topic, one_redis_config: RedisConfig, gpt2: Path, rows: list[dict[str, Any]]
) -> None:
    """Two groups on one job: all commits collide, and still every record counts once."""
    config = config_for(topic, one_redis_config, gpt2)
    kafka = config.kafka.model_copy(update={"group_id": f"{config.job}-other"})
    other = config.model_copy(update={"kafka": kafka})
    one, two = RunningDaemon(config), RunningDaemon(other)
    for begin in range(0, len(rows), 600):
        topic.put(rows[begin : begin + 600], seed=begin)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        snapshot = _latest_or_none(config)
        if snapshot is not None and sum(snapshot.offsets.values()) == len(rows):
            break
        threading.Event().wait(0.2)
    one.stop()
    two.stop()
    assert_counts(latest(config), rows, gpt2)


def _latest_or_none(config: Config) -> Snapshot | None:
    from streamfreq.snapshots import open_snapshots

    return open_snapshots(config.redis, config.snapshots, config.job).load()
