"""The Kafka source on a real broker: rebalances, mishaps, security, topics that come and go."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import KafkaConsumer
from kafka.errors import KafkaTimeoutError

from streamfreq.clock import SystemClock
from streamfreq.config import KafkaConfig
from streamfreq.errors import ConfigError, DataRefused, ServiceUnavailable
from streamfreq.records import TopicPartition
from streamfreq.sources import DeadLetter, StartAt
from streamfreq.sources.kafka import (
    KafkaDeadLetters,
    KafkaSource,
    TopicWriter,
    list_topics,
    matching_topics,
)
from tests.conformance.source_rigs import FAST, KafkaRig, Reader, Recorder, words
from tests.services.kafka import PASSWORD, USER, KafkaBroker
from tests.services.kafka_fixtures import leaves_sockets

pytestmark = pytest.mark.broker


@pytest.fixture
def rig(kafka_broker: KafkaBroker) -> KafkaRig:
    return KafkaRig(kafka_broker)


@contextmanager
def opened(source: KafkaSource, listener: Recorder) -> Iterator[Reader]:
    source.open(listener)
    try:
        yield Reader(source)
    finally:
        source.close()


class CountingWorker(Recorder):
    """Reads in a thread of its own, and keeps what it has counted in a table that all share."""

    def __init__(
        self,
        source: KafkaSource,
        counted: dict[TopicPartition, list[tuple[int, bytes | None]]],
        positions: dict[TopicPartition, int],
    ) -> None:
        super().__init__()
        self._source = source
        self._counted = counted
        self._positions = positions
        self._pending: dict[TopicPartition, list[tuple[int, bytes | None]]] = {}
        self._next: dict[TopicPartition, int] = {}
        self.stopping = threading.Event()
        self.threads: set[str] = set()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, StartAt]:
        super().on_assigned(partitions)
        self.threads.add(threading.current_thread().name)
        self._pending.update({partition: [] for partition in partitions})
        return {p: StartAt(offset=self._positions.get(p, 0)) for p in partitions}

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        super().on_revoked(partitions)
        self.threads.add(threading.current_thread().name)
        for partition in partitions:
            self._counted.setdefault(partition, []).extend(self._pending.pop(partition))
            if partition in self._next:
                self._positions[partition] = self._next.pop(partition)
        self._source.report_position({p: self._positions.get(p, 0) for p in partitions})

    def _run(self) -> None:
        try:
            self._source.open(self)
            while not self.stopping.is_set():
                for batch in self._source.poll(50):
                    rows = zip(map(int, batch.offsets_R), batch.values, strict=True)
                    self._pending[batch.partition].extend(rows)
                    self._next[batch.partition] = batch.next_offset
            self._source.close()
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(30)
        if self.error is not None:
            raise self.error


def test_workers_come_and_go_and_every_record_is_counted_once(kafka_broker: KafkaBroker) -> None:
    rig = KafkaRig(kafka_broker)
    kafka_broker.add_partitions(rig.topic, 4)
    partitions = [TopicPartition(rig.topic, p) for p in range(4)]
    counted: dict[TopicPartition, list[tuple[int, bytes | None]]] = {}
    positions: dict[TopicPartition, int] = {}
    options = {"max_poll_records": 20}
    wanted: dict[TopicPartition, list[bytes]] = {partition: [] for partition in partitions}

    def feed(step: int) -> None:
        for partition in partitions:
            wanted[partition] += words(f"{partition} step {step}", 100)
            rig.fill(partition, wanted[partition][-100:])

    workers = [CountingWorker(rig.source(**options), counted, positions)]
    for step in range(4):
        feed(step)
        if step < 2:
            workers.append(CountingWorker(rig.source(**options), counted, positions))
        time.sleep(0.4)
    workers[0].stop()
    feed(4)
    time.sleep(1.0)
    for worker in workers[1:]:
        worker.stop()
    last = CountingWorker(rig.source(**options), counted, positions)
    deadline = time.monotonic() + 30
    while (
        sum(map(len, counted.values())) + sum(map(len, last._pending.values())) < 2_000
        and time.monotonic() < deadline
    ):
        time.sleep(0.05)
    last.stop()
    for partition in partitions:
        assert counted[partition] == list(enumerate(wanted[partition]))
    for worker in [*workers, last]:
        assert worker.threads <= {worker.thread.name}
        assert worker.told("lost") == []
        assert worker.told("assigned") == worker.told("revoked")
    reported = kafka_broker.committed_offsets(rig.group)
    assert reported == {(p.topic, p.partition): 500 for p in partitions}


def test_a_worker_that_was_silent_for_too_long_has_lost_its_partitions(rig: KafkaRig) -> None:
    rig.fill(rig.first, words("a", 3))
    listener = Recorder()
    with opened(rig.source(max_poll_interval_ms=1_000), listener) as reader:
        reader.poll_until({rig.first: 3})
        listener.starts[rig.first] = StartAt(offset=3)
        time.sleep(2.0)
        reader.poll_for(lambda: listener.told("lost"))
        assert listener.told("lost") == [rig.first, rig.second]
        assert listener.told("revoked") == []
        rig.fill(rig.first, [b"more"])
        reader.poll_until({rig.first: 4})
        assert reader.values(rig.first) == [*words("a", 3), b"more"]


def test_heartbeats_go_on_while_the_listener_works(rig: KafkaRig) -> None:
    class Slow(Recorder):
        def on_assigned(
            self, partitions: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, StartAt]:
            time.sleep(2.0)
            return super().on_assigned(partitions)

    rig.fill(rig.first, words("a", 3))
    listener = Slow()
    with opened(rig.source(session_timeout_ms=1_000), listener) as reader:
        reader.poll_until({rig.first: 3})
        reader.poll_times(5)
        assert listener.told("lost") == []
        assert len(listener.events) == 1


def test_new_partitions_are_found_even_by_very_short_polls(rig: KafkaRig) -> None:
    rig.fill(rig.first, words("a", 3))
    listener = Recorder()
    with opened(rig.source(), listener) as reader:
        reader.poll_until({rig.first: 3})
        listener.starts[rig.first] = StartAt(offset=3)
        rig.broker.add_partitions(rig.topic, 3)
        third = TopicPartition(rig.topic, 2)
        rig.fill(third, words("c", 2))
        deadline = time.monotonic() + 20
        while reader.next_offsets.get(third) != 2 and time.monotonic() < deadline:
            reader.poll(1)
        assert reader.values(third) == words("c", 2)
        assert reader.values(rig.first) == words("a", 3)


def test_a_pattern_finds_the_topics_that_come_later(
    rig: KafkaRig, new_topic: Callable[..., str]
) -> None:
    rig.fill(rig.first, words("a", 3))
    prefix = rig.topic
    listener = Recorder()
    source = rig.source(topics=[], topic_pattern=f"{prefix}.*")
    with opened(source, listener) as reader:
        reader.poll_until({rig.first: 3})
        listener.starts[rig.first] = StartAt(offset=3)
        new_topic(prefix="other")
        later = TopicPartition(new_topic(prefix=prefix), 0)
        rig.broker.produce(later.topic, words("late", 2))
        reader.poll_until({later: 2})
        assert reader.values(later) == words("late", 2)
        assert reader.values(rig.first) == words("a", 3)
        assert {p.topic for p in listener.told("assigned")} == {prefix, later.topic}


def test_a_topic_that_is_not_there_yet_is_waited_for(
    rig: KafkaRig, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"{rig.topic}-later"
    with opened(rig.source(topics=[name]), Recorder()) as reader:
        reader.poll_times(10)
        assert name not in list_topics(rig.config()), "the client must not create topics"
        rig.broker.create_topic(name)
        rig.broker.produce(name, words("a", 2))
        reader.poll_until({TopicPartition(name, 0): 2})
    assert caplog.text.count(f"topic {name} does not exist yet") == 1


def test_a_topic_made_again_is_noticed(rig: KafkaRig) -> None:
    rig.fill(rig.first, words("a", 5))
    with opened(rig.source(), Recorder()) as reader:
        reader.poll_until({rig.first: 5})
        rig.broker.delete_topic(rig.topic)
        rig.broker.create_topic(rig.topic, 2)
        rig.broker.produce(rig.topic, words("another", 9))
        with pytest.raises(DataRefused, match=f"{rig.topic}.* deleted and made again"):
            reader.poll_for(lambda: False)


def test_aborted_transactions_count_only_when_wanted(rig: KafkaRig) -> None:
    broker = rig.broker
    broker.produce_transaction(rig.topic, [b"kept"])
    broker.produce_transaction(rig.topic, [b"gone"], commit=False)
    with opened(rig.source(), Recorder()) as reader:
        reader.poll_until({rig.first: 4})
        assert reader.records(rig.first) == [(0, b"kept")]
    with opened(rig.source(isolation_level="read_uncommitted"), Recorder()) as reader:
        reader.poll_until({rig.first: 4})
        assert reader.records(rig.first) == [(0, b"kept"), (2, b"gone")]


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compressed_and_large_records(rig: KafkaRig, codec: str) -> None:
    large = bytes(range(256)) * 1_000
    rig.broker.produce(rig.topic, [b"small", large, b"small"], compression_type=codec)
    options = FAST | {"max_partition_fetch_bytes": 1_000, "fetch_max_bytes": 1_000}
    with opened(rig.source(options=options), Recorder()) as reader:
        reader.poll_until({rig.first: 3})
        assert reader.values(rig.first) == [b"small", large, b"small"]


def test_options_reach_the_client_and_win(rig: KafkaRig) -> None:
    rig.fill(rig.first, words("a", 10))
    options = FAST | {"max_poll_records": 3, "client_id": "mine"}
    with opened(rig.source(options=options), Recorder()) as reader:
        reader.poll_until({rig.first: 10})
        assert max(map(len, reader.batches)) == 3


def test_sasl_over_tls(rig: KafkaRig) -> None:
    rig.fill(rig.first, words("a", 3))
    with opened(rig.source(**secure(rig)), Recorder()) as reader:
        reader.poll_until({rig.first: 3})
        assert reader.values(rig.first) == words("a", 3)
    assert list_topics(rig.config(**secure(rig)))[rig.topic] == 2


def secure(rig: KafkaRig, **changes: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": [rig.broker.secure_bootstrap],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": USER,
        "sasl_password": PASSWORD,
        "ssl_cafile": rig.broker.cafile,
        "options": FAST | {"bootstrap_timeout_ms": 1_500},
        **changes,
    }


@leaves_sockets
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sasl_password": "a secret guess"}, "check kafka.sasl_username, sasl_password"),
        ({"ssl_cafile": ""}, "CERTIFICATE_VERIFY_FAILED"),
        ({"sasl_mechanism": "SCRAM-SHA-512"}, "sasl_mechanism"),
    ],
)
def test_a_refused_connection_says_why_and_keeps_the_secret(
    rig: KafkaRig, changes: dict[str, Any], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = rig.source(**secure(rig, **changes))
    with pytest.raises((ServiceUnavailable, ConfigError)) as caught:
        source.open(Recorder())
    message = str(caught.value)
    assert says in message
    assert "\n" not in message
    ours = log_of_ours(caplog)
    for secret in ("a secret guess", PASSWORD):
        assert secret not in message + ours
    assert "Traceback" not in ours
    source.close()


def log_of_ours(caplog: pytest.LogCaptureFixture) -> str:
    """What reaches a handler of the daemon: all but the client's own loggers."""
    ours = [record for record in caplog.records if record.name.split(".")[0] != "kafka"]
    return "\n".join(map(logging.Formatter().format, ours))


@leaves_sockets
def test_no_broker_is_told_in_bounded_time_and_leaves_no_thread() -> None:
    config = KafkaConfig.model_validate(
        {
            "bootstrap_servers": ["127.0.0.1:1"],
            "topics": ["news"],
            "options": {"bootstrap_timeout_ms": 400},
        }
    )
    before = set(threading.enumerate())
    begun = time.monotonic()
    for attempt in (
        lambda: KafkaSource(config, "group", SystemClock()).open(Recorder()),
        lambda: list_topics(config),
    ):
        with pytest.raises(ServiceUnavailable, match=r"127\.0\.0\.1:1 can't be reached"):
            attempt()
    assert time.monotonic() - begun < 20
    assert set(threading.enumerate()) == before


@leaves_sockets
def test_the_broker_goes_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    with KafkaBroker() as broker:
        rig = KafkaRig(broker)
        rig.fill(rig.first, words("a", 3))
        listener = Recorder()
        source = rig.source(session_timeout_ms=20_000)
        source.open(listener)
        reader = Reader(source)
        reader.poll_until({rig.first: 3})
        broker.stop()
        with pytest.raises(ServiceUnavailable, match="can't be reached"):
            reader.poll_for(lambda: False)
        assert source.end_offsets() is None
        listener.starts[rig.first] = StartAt(offset=3)
        broker.start()
        rig.fill(rig.first, words("b", 2))
        deadline = time.monotonic() + 60
        while reader.next_offsets.get(rig.first) != 5 and time.monotonic() < deadline:
            try:
                reader.poll()
            except ServiceUnavailable:
                time.sleep(0.1)
        assert reader.values(rig.first) == [*words("a", 3), *words("b", 2)]
        broker.stop()
        begun = time.monotonic()
        source.close()
        assert time.monotonic() - begun < 20
        assert listener.events[-1][0] == "revoked"
    ours = log_of_ours(caplog)
    assert "Traceback" not in ours
    assert len(ours.splitlines()) < 10, ours


def test_dead_letters_go_to_a_topic_with_their_origin(
    rig: KafkaRig, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(prefix="dead")
    letters = KafkaDeadLetters(rig.config(), topic)
    origin = TopicPartition("news", 3)
    letters.put([DeadLetter(origin, 17, 1_600_000_000_000, b"\xff{", "not JSON: é")])
    letters.put([DeadLetter(origin, 18, -1, b"", "empty")])
    letters.flush()
    letters.flush()
    letters.close()
    first, second = rig.broker.read_all(topic)
    assert (first.value, first.timestamp) == (b"\xff{", 1_600_000_000_000)
    assert dict(first.headers) == {
        "streamfreq-reason": "not JSON: é".encode(),
        "streamfreq-topic": b"news",
        "streamfreq-partition": b"3",
        "streamfreq-offset": b"17",
    }
    assert second.value == b""


def test_dead_letters_that_can_t_be_written_are_kept(
    rig: KafkaRig, new_topic: Callable[..., str]
) -> None:
    topic = f"{rig.topic}-dead"
    config = rig.config(options=FAST | {"max_block_ms": 500, "delivery_timeout_ms": 10_000})
    letters = KafkaDeadLetters(config, topic)
    letters.put([DeadLetter(rig.first, 1, 5, b"x", "bad")])
    with pytest.raises(ServiceUnavailable, match=topic):
        letters.flush()
    rig.broker.create_topic(topic)
    letters.flush()
    letters.close()
    assert [record.value for record in rig.broker.read_all(topic)] == [b"x"]


def test_a_writer_makes_its_topic_and_the_topics_are_listed(rig: KafkaRig) -> None:
    topic = f"{rig.topic}-demo"
    for _ in range(2):
        writer = TopicWriter(rig.broker.bootstrap, topic, partitions=3)
        for value in words("a", 10):
            writer.send(value)
        writer.flush()
        writer.close()
    assert sorted(r.value for r in rig.broker.read_all(topic)) == sorted(words("a", 10) * 2)
    listed = list_topics(rig.config())
    assert listed[topic] == 3
    assert not any(name.startswith("__") for name in listed)
    pattern = rig.config(topics=[], topic_pattern=rig.topic)
    assert matching_topics(pattern, listed) == [rig.topic, topic]


def test_the_client_s_own_chatter_stays_out_of_the_log(
    rig: KafkaRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rig.fill(rig.first, words("a", 3))
    with opened(rig.source(), Recorder()) as reader:
        reader.poll_until({rig.first: 3})
    assert [r.levelname for r in caplog.records if r.name.startswith("kafka")] == []


def test_a_start_that_can_t_be_looked_up_keeps_no_other_partition_waiting(
    rig: KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise KafkaTimeoutError("no leader answers")

    rig.fill(rig.first, words("a", 3))
    rig.fill(rig.second, words("b", 3))
    starts = {rig.first: StartAt(offset=0), rig.second: StartAt(time_ms=0)}
    with monkeypatch.context() as patched:
        patched.setattr(KafkaConsumer, "offsets_for_times", refuse)
        source = rig.source()
        source.open(Recorder(starts=starts))
        reader = Reader(source)
        said: list[str] = []

        def poll() -> None:
            try:
                reader.poll()
            except ServiceUnavailable as error:
                said.append(str(error))

        deadline = time.monotonic() + 20
        while (len(reader.values(rig.first)) < 3 or not said) and time.monotonic() < deadline:
            poll()
        assert reader.values(rig.first) == words("a", 3)
        assert said
        assert source.end_offsets() is None
    try:
        reader.poll_until({rig.first: 3, rig.second: 3})
        assert reader.values(rig.second) == words("b", 3)
    finally:
        source.close()


@pytest.mark.parametrize("version", [(2, 6), (2, 8)], ids=["without ids", "fetches by name"])
def test_a_broker_that_can_t_be_asked_by_topic_id_is_read_without(
    rig: KafkaRig, version: tuple[int, int]
) -> None:
    rig.fill(rig.first, words("a", 3))
    source = rig.source(options=FAST | {"api_version": version})
    with opened(source, Recorder()) as reader:
        reader.poll_until({rig.first: 3, rig.second: 0})
        assert reader.values(rig.first) == words("a", 3)
        assert reader.topic_ids() == {""}, "the records may be of another topic of this name"
        assert source.end_offsets() == {rig.first: 3, rig.second: 0}


def test_no_record_of_another_topic_comes_while_the_metadata_are_old(rig: KafkaRig) -> None:
    rig.fill(rig.first, words("a", 5))
    options = FAST | {"metadata_max_age_ms": 600_000}
    with opened(rig.source(options=options), Recorder()) as reader:
        reader.poll_until({rig.first: 5})
        (topic_id,) = reader.topic_ids()
        rig.remake()
        rig.fill(rig.first, words("another", 50))
        with pytest.raises(DataRefused, match="made again"):
            reader.poll_for(lambda: False)
        assert reader.values(rig.first) == words("a", 5)
        assert reader.topic_ids() == {topic_id}
