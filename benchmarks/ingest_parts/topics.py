"""Topics filled with a real stream's texts."""

from __future__ import annotations

import gzip
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tests.services.kafka import KafkaBroker


@dataclass(frozen=True, slots=True)
class Filled:
    """A topic with `records` records whose values have `size` bytes together."""

    name: str
    partitions: int
    records: int
    size: int


def texts(stream: Path, join_bytes: int) -> Iterator[bytes]:
    """The stream's texts, over and over; joined to documents of at least `join_bytes`."""
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


def fill(
    broker: KafkaBroker,
    stream: Path,
    records: int,
    *,
    partitions: int = 6,
    join_bytes: int = 1,
    compression: str = "none",
) -> Filled:
    """A new topic with the first `records` texts."""
    from kafka import KafkaProducer

    topic = broker.create_topic(f"ingest-{uuid.uuid4().hex[:8]}", partitions, {})
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        compression_type=None if compression == "none" else compression,
        linger_ms=50,
        batch_size=256 * 1024,
    )
    size = 0
    for number, value in enumerate(islice(texts(stream, join_bytes), records)):
        producer.send(topic, value, partition=number % partitions)
        size += len(value)
    producer.flush()
    producer.close()
    return Filled(topic, partitions, records, size)
