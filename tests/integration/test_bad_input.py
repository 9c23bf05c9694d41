"""Every row of the bad-input table, through the real broker and a real store."""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamfreq.codec import Snapshot
from streamfreq.config import Config, RedisConfig
from streamfreq.errors import BadRecord, OffsetExpired, SnapshotRefused
from streamfreq.redis_client import connect
from streamfreq.snapshots import SnapshotReader, open_snapshots
from streamfreq.tokenization import load_tokenizer
from tests.integration.harness import RunningDaemon, catch_up, daemon_config, latest
from tests.services.kafka import KafkaBroker
from tests.services.kafka_fixtures import leaves_sockets
from tests.services.redis import RedisServer

pytestmark = [pytest.mark.broker, pytest.mark.redis_server]

HOUR_MS = 3_600_000


class Bench:
    """A topic of one partition, and a configuration that reads it."""

    def __init__(self, broker: KafkaBroker, topic: str, redis: RedisConfig) -> None:
        self.broker = broker
        self.topic = topic
        self.redis = redis
        self._job = f"job-{topic}"

    def config(self, **sections: Any) -> Config:
        kafka = {"bootstrap_servers": [self.broker.bootstrap], "topics": [self.topic]}
        sections["kafka"] = {**kafka, **sections.get("kafka", {})}
        return daemon_config(self._job, redis=self.redis.model_dump(), **sections)

    def put(self, *values: bytes | None, timestamps_ms: Sequence[int] | None = None) -> None:
        self.broker.produce(self.topic, list(values), timestamps_ms=timestamps_ms)

    def count(self, *values: bytes | None, **sections: Any) -> tuple[Snapshot, RunningDaemon]:
        self.put(*values)
        config = self.config(**sections)
        daemon = RunningDaemon(config, until_caught_up=True)
        daemon.join()
        return latest(config), daemon


@pytest.fixture
def bench(
    kafka_broker: KafkaBroker, new_topic: Callable[..., str], one_redis_config: RedisConfig
) -> Bench:
    return Bench(kafka_broker, new_topic(partitions=1), one_redis_config)


def words(snapshot: Snapshot, config: Config) -> dict[str, int]:
    """The plain counts by word."""
    tokenizer = load_tokenizer(config.tokenizer)
    plain = snapshot.half_lives_seconds.index(float("inf"))
    return {
        snapshot.labels.get(int(token_id)) or tokenizer.token_text(int(token_id)): int(count)
        for token_id, count in enumerate(snapshot.counts_HV[plain])
        if count
    }


def metric(daemon: RunningDaemon, kind: str) -> float:
    metrics = daemon.daemon.metrics
    return metrics.value("streamfreq_bad_records_total", kind=kind)


def test_invalid_utf8_is_replaced_and_counted(bench: Bench) -> None:
    snapshot, daemon = bench.count(b"caf\xe9 ok", b"ok")
    assert words(snapshot, bench.config())["ok"] == 2
    assert snapshot.records_H[-1] == 2
    assert metric(daemon, "replaced_utf8") == 1


def test_invalid_utf8_by_policy_goes_aside(bench: Bench, tmp_path: Path) -> None:
    letters = tmp_path / "letters.jsonl"
    snapshot, _ = bench.count(
        b"caf\xe9",
        b"ok",
        value={"on_invalid_utf8": "dead-letter", "dead_letter_file": str(letters)},
    )
    assert words(snapshot, bench.config()) == {"ok": 1}
    (line,) = letters.read_text().splitlines()
    letter = json.loads(line)
    assert letter["reason"] == "invalid_utf8"
    assert base64.b64decode(letter["base64"]) == b"caf\xe9"


def test_null_and_empty_values_are_skipped_and_counted(bench: Bench) -> None:
    snapshot, daemon = bench.count(None, b"", b"   ", b"ok")
    assert words(snapshot, bench.config()) == {"ok": 1}
    assert list(snapshot.offsets.values()) == [4]
    assert (metric(daemon, "null"), metric(daemon, "empty")) == (1, 2)


BAD_JSON = (b"{not json", b'{"other": 1}', b'{"text": 7}', b"[1]", b'{"text": "' + b"x" * 5000)


def test_bad_json_is_skipped_and_counted(bench: Bench) -> None:
    snapshot, daemon = bench.count(
        *BAD_JSON, b'{"text": "ok"}', value={"format": "json", "max_record_bytes": 4096}
    )
    assert words(snapshot, bench.config()) == {"ok": 1}
    kinds = ("not_json", "no_text_field", "too_large")
    assert sum(metric(daemon, kind) for kind in kinds) == len(BAD_JSON)
    assert metric(daemon, "too_large") == 1


def test_bad_json_goes_to_the_dead_letter_topic(
    bench: Bench, new_topic: Callable[..., str]
) -> None:
    letters = new_topic(prefix="letters")
    snapshot, _ = bench.count(
        *BAD_JSON,
        b'{"text": "ok"}',
        value={
            "format": "json",
            "max_record_bytes": 4096,
            "on_bad": "dead-letter",
            "dead_letter_topic": letters,
        },
    )
    assert words(snapshot, bench.config()) == {"ok": 1}
    aside = bench.broker.read_all(letters)
    assert [record.value for record in aside] == list(BAD_JSON)
    reasons = {dict(record.headers)["streamfreq-reason"] for record in aside}
    assert reasons <= {b"not_json", b"no_text_field", b"too_large"}


def test_stop_keeps_the_offset_and_goes_on_there_when_the_policy_changes(bench: Bench) -> None:
    bench.put(b'{"text": "before"}', b"{bad", b'{"text": "behind"}')
    config = bench.config(value={"format": "json", "on_bad": "stop"})
    for _ in range(2):
        with pytest.raises(BadRecord, match=r"offset 1: not_json.*value\.on_bad"):
            catch_up(config)
    skipping = bench.config(value={"format": "json", "on_bad": "skip"})
    catch_up(skipping)
    assert words(latest(skipping), skipping) == {"before": 1, "behind": 1}


def test_a_poison_record_is_isolated(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamfreq.tokenization.words import WordsTokenizer

    encode = WordsTokenizer.encode_batch

    def failing(self: WordsTokenizer, texts: Sequence[str]) -> Any:
        if any("poison" in text for text in texts):
            raise RuntimeError("boom")
        return encode(self, texts)

    monkeypatch.setattr(WordsTokenizer, "encode_batch", failing)
    snapshot, daemon = bench.count(*[b"ok"] * 40, b"poison", *[b"ok"] * 40)
    assert words(snapshot, bench.config()) == {"ok": 80}
    assert metric(daemon, "poison") == 1


def test_timestamps_missing_and_far_ahead(
    kafka_broker: KafkaBroker, one_redis_config: RedisConfig
) -> None:
    bench = Bench(kafka_broker, f"ahead-{uuid.uuid4().hex[:8]}", one_redis_config)
    now = time.time_ns() // 1_000_000
    year = 365 * 24 * HOUR_MS
    bench.broker.create_topic(bench.topic, configs={"message.timestamp.after.max.ms": 2 * year})
    bench.put(b"now", b"ahead", timestamps_ms=[now - HOUR_MS, now + year])
    bench.put(b'{"text": "x"}')
    config = bench.config()
    catch_up(config)
    snapshot = latest(config)
    assert snapshot.as_of_ms <= now + 2 * HOUR_MS
    assert words(snapshot, config)["now"] == 1
    assert np.isfinite(snapshot.counts_HV).all()
    short = snapshot.counts_HV[0]
    assert short.sum() > 0.1


@pytest.mark.parametrize("policy", ["earliest", "latest", "fail"])
def test_expired_offsets_follow_the_policy_and_leave_a_gap(bench: Bench, policy: str) -> None:
    config = bench.config(kafka={"expired_offset": policy})
    bench.put(*[b"one"] * 5)
    catch_up(config)
    bench.put(*[b"two"] * 5)
    bench.broker.delete_records(bench.topic, {0: 8})
    if policy == "fail":
        with pytest.raises(OffsetExpired):
            catch_up(config)
        return
    catch_up(config)
    snapshot = latest(config)
    end = 10 if policy == "latest" else 8
    assert [(gap.first, gap.last) for gap in snapshot.gaps] == [(5, end)]
    counted = words(snapshot, config)
    assert counted["one"] == 5
    assert counted.get("two", 0) == 10 - end


@pytest.mark.parametrize("damage", ["checksum", "truncated", "tokenizer"])
def test_a_bad_snapshot_is_refused_and_the_last_good_one_stays(
    bench: Bench, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    snapshot, _ = bench.count(b"ok")
    config = bench.config()
    store = open_snapshots(config.redis, config.snapshots, config.job)
    reader = SnapshotReader(store, snapshot.tokenizer_fingerprint)
    assert reader.refresh()
    fingerprint = "beef" if damage == "tokenizer" else snapshot.tokenizer_fingerprint
    bad = replace(snapshot, version=snapshot.version + 1, tokenizer_fingerprint=fingerprint)
    store.publish(bad, fence=1_000)
    if damage != "tokenizer":
        client = connect(config.redis)
        pattern = f"{config.redis.prefix}*snapshot:{bad.version}"
        (key,) = client.scan_iter(match=pattern)  # type: ignore[attr-defined]
        body = client.get(key)  # type: ignore[attr-defined]
        worse = body[:-9] if damage == "truncated" else body[:-1] + bytes([body[-1] ^ 1])
        client.set(key, worse)  # type: ignore[attr-defined]
        with pytest.raises(SnapshotRefused):
            store.load()
    assert not reader.refresh()
    assert not reader.refresh()
    assert reader.refused == 1
    assert reader.snapshot is not None
    assert reader.snapshot.version == snapshot.version
    assert sum("the last good snapshot stays" in message for message in caplog.messages) == 1
    store.publish(replace(snapshot, version=bad.version + 1), fence=1_001)
    assert reader.refresh()
    assert reader.snapshot.version == bad.version + 1


def test_the_store_goes_away_and_comes_back_and_nothing_is_lost(
    kafka_broker: KafkaBroker, new_topic: Callable[..., str], redis_kind: str
) -> None:
    with RedisServer(redis_kind, appendonly=True) as server:
        bench = Bench(kafka_broker, new_topic(), server.config(timeout_ms=300))
        config = bench.config()
        daemon = RunningDaemon(config)
        bench.put(*[b"one"] * 100)
        wait_for(lambda: _offset(config) == 100)
        wait_for(lambda: daemon.daemon.health.report().ready)
        server.shutdown()
        bench.put(*[b"two"] * 100)
        wait_for(lambda: not daemon.daemon.health.report().ready)
        version = daemon.daemon.metrics.value("streamfreq_snapshot_version")
        server.start()
        wait_for(lambda: daemon.daemon.health.report().ready)
        wait_for(lambda: _offset(config) == 200)
        daemon.stop()
        snapshot = latest(config)
        assert words(snapshot, config) == {"one": 100, "two": 100}
        assert snapshot.version > version


@leaves_sockets
def test_the_broker_goes_away_and_comes_back_and_nothing_is_lost(
    new_topic: Callable[..., str], one_redis_config: RedisConfig
) -> None:
    with KafkaBroker() as broker:
        topic = broker.create_topic("news")
        bench = Bench(broker, topic, one_redis_config)
        config = bench.config()
        daemon = RunningDaemon(config)
        bench.put(*[b"one"] * 100)
        wait_for(lambda: _offset(config) == 100)
        broker.stop()
        wait_for(lambda: not daemon.daemon.health.report().ready, 60)
        broker.start()
        bench.put(*[b"two"] * 100)
        wait_for(lambda: _offset(config) == 200, 60)
        wait_for(lambda: daemon.daemon.health.report().ready)
        daemon.stop()
        assert words(latest(config), config) == {"one": 100, "two": 100}


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def _offset(config: Config) -> int:
    snapshot = open_snapshots(config.redis, config.snapshots, config.job).load()
    return -1 if snapshot is None else sum(snapshot.offsets.values())
