"""Whole daemons on topics that differ, grow, are compacted, transactional, deleted, made again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import KafkaProducer

from streamfreq.checkpoints import open_checkpoints
from streamfreq.codec import Gap, Snapshot
from streamfreq.config import Config, RedisConfig
from streamfreq.errors import DataRefused
from streamfreq.records import TopicPartition
from streamfreq.snapshots import open_snapshots
from streamfreq.tokenization import load_tokenizer
from tests.conformance.source_rigs import FAST
from tests.integration.harness import RunningDaemon, catch_up, daemon_config, latest
from tests.services.kafka import KafkaBroker

pytestmark = [pytest.mark.broker, pytest.mark.redis_server]

WORDS = (
    *[
        "aborted",
        "before",
        "behind",
        "first",
        "kept",
        "last",
        "new",
        "old",
        "open",
        "plain",
        "second",
        "third",
    ],
    *(f"word{number}" for number in range(4)),
    *(f"word{topic}{partition}" for topic in range(2) for partition in range(5)),
)
NewTopic = Callable[..., str]
Make = Callable[..., Config]


@pytest.fixture
def config_of(kafka_broker: KafkaBroker, one_redis_config: RedisConfig) -> Make:
    """Makes the configuration of a new job: `config_of(topic, ..., **options of [kafka])`."""

    def make(*topics: str, **kafka: Any) -> Config:
        given = {
            "bootstrap_servers": [kafka_broker.bootstrap],
            "topics": list(topics),
            "session_timeout_ms": 6_000,
            "options": FAST,
        }
        return daemon_config(kafka=given | kafka, redis=one_redis_config.model_dump())

    return make


def words_of(snapshot: Snapshot, config: Config) -> dict[str, int]:
    """The plain counts by word, or by number of what is none of the words of this module."""
    ids = load_tokenizer(config.tokenizer).encode_batch(list(WORDS)).ids_N.tolist()
    names = dict(zip(ids, WORDS, strict=True))
    plain = snapshot.half_lives_seconds.index(float("inf"))
    return {
        names.get(token_id, str(token_id)): int(count)
        for token_id, count in enumerate(snapshot.counts_HV[plain].tolist())
        if count
    }


def offsets_of(config: Config) -> dict[tuple[str, int], int]:
    """The next offsets of the latest snapshot; empty before the first."""
    snapshot = open_snapshots(config.redis, config.snapshots, config.job).load()
    return {} if snapshot is None else {tuple(key): end for key, end in snapshot.offsets.items()}


def wait_until(condition: Callable[[], object], daemons: Sequence[RunningDaemon] = ()) -> None:
    """Wait for something; a daemon that ends meanwhile is the failure that is told."""
    deadline = time.monotonic() + 60
    while not condition():
        for daemon in daemons:
            if daemon.error is not None:
                raise daemon.error
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


@contextmanager
def producer_of(broker: KafkaBroker, **options: Any) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, **options)
    try:
        yield producer
    finally:
        producer.close()


def test_two_topics_of_different_sizes_shared_by_two_workers(
    kafka_broker: KafkaBroker, new_topic: NewTopic, config_of: Make
) -> None:
    sizes = {new_topic(2): 2, new_topic(5): 5}
    wanted: dict[str, int] = {}
    ends: dict[tuple[str, int], int] = {}

    def put(rows: int) -> None:
        for number, (topic, partitions) in enumerate(sizes.items()):
            for partition in range(partitions):
                word = f"word{number}{partition}"
                kafka_broker.produce(topic, [word.encode()] * (rows + partition), partition)
                wanted[word] = wanted.get(word, 0) + rows + partition
                ends[topic, partition] = wanted[word]

    put(100)
    config = config_of(*sizes, max_poll_records=50)
    catch_up(config, config)
    assert words_of(latest(config), config) == wanted
    daemons = [RunningDaemon(config), RunningDaemon(config)]
    put(60)
    wait_until(lambda: offsets_of(config) == ends, daemons)
    for daemon in daemons:
        daemon.stop()
    snapshot = latest(config)
    assert words_of(snapshot, config) == wanted
    assert snapshot.gaps == ()


@pytest.mark.parametrize("start", ["earliest", "latest", "lookback"])
def test_partitions_added_while_running_are_read_from_their_beginning(
    kafka_broker: KafkaBroker, new_topic: NewTopic, config_of: Make, start: str
) -> None:
    topic = new_topic(2)
    for partition in (0, 1):
        kafka_broker.produce(topic, [b"before"] * 10, partition)
    config = config_of(topic, start=start)
    daemons = [RunningDaemon(config), RunningDaemon(config)]
    checkpoints = open_checkpoints(config.redis, config.job)
    wait_until(lambda: len(checkpoints.revisions()) == 2, daemons)
    kafka_broker.produce(topic, [b"old"] * 5, 0)
    kafka_broker.add_partitions(topic, 4)
    # An event time of long ago does not make a record of a new partition older than the job.
    for partition, stamp_ms in ((2, None), (3, 1)):
        stamps = None if stamp_ms is None else [stamp_ms] * 7
        kafka_broker.produce(topic, [b"new"] * 7, partition, timestamps_ms=stamps)
    ends = {(topic, 0): 15, (topic, 1): 10, (topic, 2): 7, (topic, 3): 7}
    wait_until(lambda: offsets_of(config) == ends, daemons)
    for daemon in daemons:
        daemon.stop()
    snapshot = latest(config)
    before = {} if start == "latest" else {"before": 20}
    assert words_of(snapshot, config) == {"old": 5, "new": 14, **before}
    gaps = [Gap(TopicPartition(topic, p), 0, 10) for p in (0, 1)] if start == "latest" else []
    assert list(snapshot.gaps) == gaps


def test_partitions_added_while_no_daemon_runs_are_read_from_their_beginning(
    kafka_broker: KafkaBroker, new_topic: NewTopic, config_of: Make
) -> None:
    topic = new_topic(1)
    kafka_broker.produce(topic, [b"before"] * 10)
    config = config_of(topic, start="latest")
    catch_up(config)
    kafka_broker.add_partitions(topic, 2)
    kafka_broker.produce(topic, [b"old"] * 5, 0)
    kafka_broker.produce(topic, [b"new"] * 5, 1)
    catch_up(config)
    assert words_of(latest(config), config) == {"old": 5, "new": 5}


def test_a_compacted_topic_counts_what_is_left_and_has_no_gap(
    kafka_broker: KafkaBroker, new_topic: NewTopic, config_of: Make
) -> None:
    topic = new_topic(
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=0.001,
        segment_ms=100,
        delete_retention_ms=0,
    )
    with producer_of(kafka_broker) as producer:
        for row in range(60):
            producer.send(topic, f"word{row % 4}".encode(), key=str(row % 4).encode())
            if row % 20 == 19:
                producer.flush()
                time.sleep(0.2)
        # Only segments that are closed are compacted, and a record closes the last one.
        time.sleep(0.2)
        producer.send(topic, b"last", key=b"last").get(timeout=10)

    def left() -> list[int]:
        return [record.offset for record in kafka_broker.read_all(topic)]

    wait_until(lambda: len(left()) < 30)
    assert left()[0] > 0, "the log begins with a hole"
    config = config_of(topic)
    daemon = RunningDaemon(config)
    wait_until(lambda: offsets_of(config) == {(topic, 0): 61}, [daemon])
    kafka_broker.produce(topic, [None])
    wait_until(lambda: offsets_of(config) == {(topic, 0): 62}, [daemon])
    daemon.stop()
    snapshot = latest(config)
    assert words_of(snapshot, config)["last"] == 1
    assert sum(words_of(snapshot, config).values()) < 30
    assert snapshot.gaps == ()


def test_aborted_transactions_are_not_counted_and_their_offsets_are_passed(
    kafka_broker: KafkaBroker, new_topic: NewTopic, config_of: Make
) -> None:
    topic = new_topic(2)
    kafka_broker.produce_transaction(topic, [b"kept"] * 5)  # with its marker: 6 offsets
    kafka_broker.produce_transaction(topic, [b"aborted"] * 50, commit=False)
    kafka_broker.produce(topic, [b"plain"] * 3)
    kafka_broker.produce_transaction(topic, [b"aborted"] * 50, commit=False)
    kafka_broker.produce_transaction(topic, [b"aborted"] * 4, 1, commit=False)
    config = config_of(topic, max_poll_records=7)
    catch_up(config)
    snapshot = latest(config)
    assert words_of(snapshot, config) == {"kept": 5, "plain": 3}
    assert offsets_of(config) == {(topic, 0): 111, (topic, 1): 5}
    assert snapshot.gaps == ()
    catch_up(config)
    everything = config_of(topic, isolation_level="read_uncommitted")
    catch_up(everything)
    assert words_of(latest(everything), everything) == {"kept": 5, "plain": 3, "aborted": 104}


def test_an_open_transaction_is_counted_once_it_is_committed(
    kafka_broker: KafkaBroker, new_topic: NewTopic, config_of: Make
) -> None:
    topic = new_topic()
    kafka_broker.produce(topic, [b"plain"] * 3)
    config = config_of(topic)
    with producer_of(kafka_broker, transactional_id=f"{topic}-writer") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(5):
            producer.send(topic, b"open")
        producer.flush()
        kafka_broker.produce(topic, [b"behind"])
        catch_up(config)
        assert words_of(latest(config), config) == {"plain": 3}
        assert offsets_of(config) == {(topic, 0): 3}
        producer.commit_transaction()
    wait_until(lambda: kafka_broker.end_offsets(topic) == {0: 10})
    catch_up(config)
    assert offsets_of(config) == {(topic, 0): 10}
    assert words_of(latest(config), config) == {"plain": 3, "open": 5, "behind": 1}


@pytest.mark.parametrize("rows", [0, 3, 5, 9], ids=["empty", "shorter", "as long", "longer"])
def test_a_topic_made_again_while_no_daemon_runs_is_refused(
    kafka_broker: KafkaBroker, new_topic: NewTopic, config_of: Make, rows: int
) -> None:
    topic, other = new_topic(2), new_topic()
    kafka_broker.produce(topic, [b"first"] * 5)
    config = config_of(topic, other)
    catch_up(config)
    before = latest(config)
    remake(kafka_broker, topic, {0: rows})
    with pytest.raises(DataRefused, match=f"{topic}.* made again") as refused:
        catch_up(config)
    assert "\n" not in str(refused.value)
    assert words_of(latest(config), config) == {"first": 5}
    assert latest(config).offsets == before.offsets


def test_a_topic_made_again_while_a_daemon_runs_is_refused(
    kafka_broker: KafkaBroker, new_topic: NewTopic, config_of: Make
) -> None:
    topic = new_topic(2)
    kafka_broker.produce(topic, [b"first"] * 5)
    config = config_of(topic)
    daemon = RunningDaemon(config)
    wait_until(lambda: offsets_of(config) == {(topic, 0): 5, (topic, 1): 0}, [daemon])
    remake(kafka_broker, topic, {0: 20, 1: 20})
    with pytest.raises(DataRefused, match=f"{topic}.* made again") as refused:
        daemon.join()
    assert "\n" not in str(refused.value)
    assert words_of(latest(config), config) == {"first": 5}


def remake(broker: KafkaBroker, topic: str, rows: Mapping[int, int]) -> None:
    """Delete a topic and make another one of its name, with two partitions."""
    broker.delete_topic(topic)
    broker.create_topic(topic, 2)
    for partition, count in rows.items():
        broker.produce(topic, [b"second"] * count, partition)


def test_a_topic_deleted_for_good_is_told_and_the_others_are_read_on(
    kafka_broker: KafkaBroker,
    new_topic: NewTopic,
    config_of: Make,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gone, kept = new_topic(2), new_topic()
    for topic in (gone, kept):
        kafka_broker.produce(topic, [b"first"] * 5)
    config = config_of(gone, kept)
    daemon = RunningDaemon(config)
    ends = {(gone, 0): 5, (gone, 1): 0, (kept, 0): 5}
    wait_until(lambda: offsets_of(config) == ends, [daemon])
    kafka_broker.delete_topic(gone)
    kafka_broker.produce(kept, [b"second"] * 5)
    wait_until(lambda: offsets_of(config) == ends | {(kept, 0): 10}, [daemon])
    wait_until(lambda: f"topic {gone} is gone" in caplog.text, [daemon])
    kafka_broker.produce(kept, [b"third"] * 5)
    wait_until(lambda: offsets_of(config) == ends | {(kept, 0): 15}, [daemon])
    metrics = daemon.daemon.metrics
    wait_until(lambda: metrics.value("streamfreq_partitions_assigned") == 1, [daemon])
    wait_until(lambda: daemon.daemon.health.report().ready, [daemon])
    daemon.stop()
    assert words_of(latest(config), config) == {"first": 10, "second": 5, "third": 5}
