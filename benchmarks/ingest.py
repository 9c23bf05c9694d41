"""Counting a topic beside reading it, and beside what a user would write.

    python -m benchmarks.ingest STREAM.jsonl.gz --tokenizer FOLDER --records 200000

A real broker and a topic of six partitions, filled once; then, in turn and several times over, each
in a process of its own that has loaded what it needs before the clock starts:

- drain: the same client with the same settings reads the topic and drops the values;
- daemon: `streamfreq run --until-caught-up`, from the start of the topic, everything on: cleaning,
  tokenizing, three half-lives with document counts, commits and publications on their schedule;
- usual: the same client, `tokenizers` with `encode_batch_fast`, numpy's bincount, three tables that
  are decayed by multiplying each whole table per poll, written to the store at the same interval.

Prints medians and their spread; `--json` prints one line instead.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.services.kafka import KafkaBroker
from tests.services.redis import RedisServer

PARTITIONS = 6
WAYS = ("drain", "daemon", "usual")
HALF_LIVES = (300.0, 3_600.0, 86_400.0)


def texts(stream: Path, join_bytes: int) -> Iterator[bytes]:
    """The stream's texts, over and over; joined to documents of about `join_bytes`."""
    while True:
        with gzip.open(stream, "rt", encoding="utf-8") as rows:
            held: list[str] = []
            size = 0
            for row in rows:
                text = json.loads(row)["text"]
                held.append(text)
                size += len(text.encode())
                if size >= join_bytes:
                    yield " ".join(held).encode()
                    held, size = [], 0


def fill(broker: KafkaBroker, options: argparse.Namespace) -> tuple[str, int]:
    """A topic with the records; its name, and the bytes of their values."""
    from kafka import KafkaProducer

    topic = broker.create_topic(f"ingest-{uuid.uuid4().hex[:8]}", PARTITIONS, {})
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        compression_type=None if options.compression == "none" else options.compression,
        linger_ms=50,
        batch_size=256 * 1024,
    )
    size = 0
    for _, value in zip(
        range(options.records), texts(options.stream, options.join_bytes), strict=False
    ):
        producer.send(topic, value)
        size += len(value)
    producer.flush()
    producer.close()
    return topic, size


def config_of(options: argparse.Namespace) -> Any:
    from streamfreq.config import Config

    return Config.model_validate(
        {
            "job": f"ingest-{uuid.uuid4().hex[:8]}",
            "kafka": {"bootstrap_servers": [options.bootstrap], "topics": [options.topic]},
            "tokenizer": {"path": str(options.tokenizer)},
            "counting": {"half_lives": list(HALF_LIVES), "device": "cpu"},
            "redis": {"url": options.url},
            "telemetry": {"http_port": -1, "log_level": "WARNING"},
        }
    )


def consumer_of(options: argparse.Namespace) -> Any:
    """The client with the daemon's settings, at the start of every partition."""
    from kafka import KafkaConsumer, TopicPartition

    from streamfreq.sources.kafka.options import consumer_options

    settings = consumer_options(config_of(options).kafka, f"ingest-{uuid.uuid4().hex[:8]}")
    consumer = KafkaConsumer(**settings)
    partitions = [TopicPartition(options.topic, number) for number in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    return consumer


def drain(options: argparse.Namespace) -> float:
    consumer = consumer_of(options)
    read, began = 0, time.perf_counter()
    while read < options.records:
        polled = consumer.poll(timeout_ms=200, max_records=10_000)
        read += sum(len(records) for records in polled.values())
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def daemon(options: argparse.Namespace) -> float:
    from streamfreq.daemon.build import build_daemon

    made = build_daemon(config_of(options))
    began = time.perf_counter()
    made.run(until_caught_up=True)
    return time.perf_counter() - began


def usual(options: argparse.Namespace) -> float:
    import redis
    from tokenizers import Tokenizer

    path = options.tokenizer
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json" if path.is_dir() else path))
    size = tokenizer.get_vocab_size()
    tables = np.zeros((len(HALF_LIVES), size))
    server = redis.Redis.from_url(options.url)
    consumer = consumer_of(options)
    read, began = 0, time.perf_counter()
    last = written = began
    while read < options.records:
        polled = consumer.poll(timeout_ms=200, max_records=10_000)
        values = [record.value.decode() for records in polled.values() for record in records]
        if not values:
            continue
        encoded = tokenizer.encode_batch_fast(values, add_special_tokens=False)
        ids = np.concatenate([np.array(item.ids, np.int64) for item in encoded])
        now = time.perf_counter()
        for row, half_life in enumerate(HALF_LIVES):
            tables[row] *= 0.5 ** ((now - last) / half_life)
            tables[row] += np.bincount(ids, minlength=size)
        last = now
        read += len(values)
        if now - written > 30:
            server.set("usual", tables.tobytes())
            written = now
    server.set("usual", tables.tobytes())
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def child(way: str, options: argparse.Namespace, topic: str, bootstrap: str, url: str) -> float:
    """One measurement in a process of its own, seconds."""
    words = ["--way", way, "--topic", topic, "--bootstrap", bootstrap, "--url", url]
    words += ["--tokenizer", str(options.tokenizer), "--records", str(options.records)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ingest", str(options.stream), *words],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{way}: {done.stderr[-2000:]}")
    return float(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stream", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--join-bytes", type=int, default=1, help="join texts to such documents")
    parser.add_argument(
        "--compression", default="none", choices=["none", "gzip", "lz4", "zstd", "snappy"]
    )
    parser.add_argument("--json", action="store_true", dest="as_json")
    for name in ("--way", "--topic", "--bootstrap", "--url"):
        parser.add_argument(name, default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print({"drain": drain, "daemon": daemon, "usual": usual}[options.way](options))
        return
    with KafkaBroker() as broker, RedisServer() as store:
        topic, size = fill(broker, options)
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(options.repeats):
            for way in WAYS:
                seconds[way].append(child(way, options, topic, broker.bootstrap, store.url))
    report(options, size, seconds)


def report(options: argparse.Namespace, size: int, seconds: dict[str, list[float]]) -> None:
    def ratios(slow: str, fast: str) -> list[float]:
        """How many times as fast, run by run."""
        return sorted(
            round(one / other, 3) for one, other in zip(seconds[slow], seconds[fast], strict=True)
        )

    result = {
        "records": options.records,
        "bytes": size,
        "records_per_second": {
            way: round(options.records / statistics.median(times)) for way, times in seconds.items()
        },
        "daemon_over_drain": statistics.median(ratios("drain", "daemon")),
        "daemon_over_drain_spread": ratios("drain", "daemon")[:: max(1, options.repeats - 1)],
        "daemon_over_usual": statistics.median(ratios("usual", "daemon")),
        "daemon_over_usual_spread": ratios("usual", "daemon")[:: max(1, options.repeats - 1)],
    }
    if options.as_json:
        print(json.dumps(result))
        return
    print(f"{options.records:,} records of {size / options.records:,.0f} bytes")
    for way, times in seconds.items():
        rate = options.records / statistics.median(times)
        print(
            f"{way:<7} {rate:>10,.0f} records/s, {size / 1e6 / statistics.median(times):,.1f} MB/s"
        )
    for name in ("daemon_over_drain", "daemon_over_usual"):
        print(f"{name} {result[name]:.2f}, from {result[f'{name}_spread']}")


if __name__ == "__main__":
    main()
