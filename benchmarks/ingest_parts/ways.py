"""One way to get through a topic, in a process of its own: prints one line of JSON.

    python -m benchmarks.ingest_parts.ways daemon --topic T --bootstrap HOST:PORT --url redis://...

What a way needs is imported and loaded before its clock starts.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import psutil

HALF_LIVES = (300.0, 3_600.0, 86_400.0)
WRITE_SECONDS = 30.0


def config_of(options: argparse.Namespace) -> Any:
    """The daemon's configuration: everything on, but for what `--set` says otherwise."""
    from streamfreq.config.load import load_config

    settings = {
        "job": options.job or f"ingest-{uuid.uuid4().hex[:8]}",
        "kafka.bootstrap_servers": options.bootstrap,
        "kafka.topics": options.topic,
        "tokenizer.path": str(options.tokenizer),
        "counting.half_lives": json.dumps([f"{seconds:.0f}s" for seconds in HALF_LIVES]),
        "counting.device": "cpu",
        "redis.url": options.url,
        "telemetry.http_port": "-1",
        "telemetry.log_level": "WARNING",
    }
    overrides = [f"{key}={value}" for key, value in settings.items()] + options.set
    return load_config(None, overrides=overrides, env={})


def consumer_of(options: argparse.Namespace) -> Any:
    """The client with the daemon's settings, at the start of every partition."""
    from kafka import KafkaConsumer, TopicPartition

    from streamfreq.sources.kafka.options import consumer_options

    settings = consumer_options(config_of(options).kafka, f"ingest-{uuid.uuid4().hex[:8]}")
    consumer = KafkaConsumer(**settings)
    partitions = [TopicPartition(options.topic, number) for number in range(options.partitions)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    return consumer


def drain(options: argparse.Namespace) -> dict[str, Any]:
    """Read and drop."""
    consumer = consumer_of(options)
    read, began = 0, time.perf_counter()
    while read < options.records:
        polled = consumer.poll(timeout_ms=200, max_records=10_000)
        read += sum(len(records) for records in polled.values())
    seconds = time.perf_counter() - began
    consumer.close()
    return {"seconds": seconds}


def daemon(options: argparse.Namespace) -> dict[str, Any]:
    """`streamfreq run --until-caught-up`, from a topic's start to the last snapshot."""
    from streamfreq.daemon.build import build_daemon

    config = config_of(options)
    stages = None
    if options.stages:
        from benchmarks.ingest_parts.stages import time_the_daemon

        stages = time_the_daemon(getattr(config.kafka, "client", "kafka-python"))
    made = build_daemon(config)
    gc.collect()
    gc.freeze()  # as the command does
    began = time.perf_counter()
    made.run(until_caught_up=True)
    result: dict[str, Any] = {"seconds": time.perf_counter() - began}
    if stages is not None:
        result["stages"] = stages.as_json(options.records)
    return result


def usual(options: argparse.Namespace) -> dict[str, Any]:
    """What one would write: encode_batch_fast, bincount, whole tables decayed at each poll."""
    import redis
    from tokenizers import Tokenizer

    path = options.tokenizer
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json" if path.is_dir() else path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
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
        if now - written > WRITE_SECONDS:
            server.set("usual", tables.tobytes())
            written = now
    server.set("usual", tables.tobytes())
    seconds = time.perf_counter() - began
    consumer.close()
    return {"seconds": seconds, "records": read}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("way", choices=["drain", "daemon", "usual"])
    for name in ("--topic", "--bootstrap", "--url", "--job"):
        parser.add_argument(name, default="")
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--records", type=int)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--stages", action="store_true")
    parser.add_argument("--set", action="append", default=[])
    return parser.parse_args()


def main() -> None:
    options = arguments()
    before = psutil.cpu_times(percpu=True)
    began = time.perf_counter()
    cpu = time.process_time()
    result = {"drain": drain, "daemon": daemon, "usual": usual}[options.way](options)
    whole = time.perf_counter() - began
    after = psutil.cpu_times(percpu=True)
    busy = [
        1 - (now.idle - then.idle) / whole for then, now in zip(before, after, strict=True)
    ]  # of the machine: broker and store, too
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        json.dumps(
            {
                "records": options.records,
                "cpu_seconds": round(time.process_time() - cpu, 3),
                "cores_busy": [round(share, 2) for share in busy],
                "peak_mb": round(peak_bytes / 2**20),
                **result,
            }
        )
    )


if __name__ == "__main__":
    main()
