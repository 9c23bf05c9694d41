"""Where to begin: StartAt as offsets, by as few requests as there are kinds of start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import kafka

from streamfreq.records import TopicPartition
from streamfreq.sources.base import StartAt

LOOKUP_TIMEOUT_MS = 10_000


def client_partition(partition: TopicPartition) -> Any:
    """The partition in the client's type."""
    return kafka.TopicPartition(partition.topic, partition.partition)


def beginning_offsets(
    consumer: Any, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The first offset that the broker still has, of each partition."""
    return _bounds(consumer.beginning_offsets, partitions)


def end_offsets(consumer: Any, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The offset behind the last record; with read_committed, of the last finished transaction."""
    return _bounds(consumer.end_offsets, partitions)


def resolve(consumer: Any, starts: Mapping[TopicPartition, StartAt]) -> dict[TopicPartition, int]:
    """The offset that each start means; raises the client's KafkaError when it can't be asked."""
    offsets: dict[TopicPartition, int] = {}
    times_ms: dict[TopicPartition, int] = {}
    earliest: list[TopicPartition] = []
    latest: list[TopicPartition] = []
    for partition, start in starts.items():
        if start.offset is not None:
            offsets[partition] = start.offset
        elif start.time_ms is not None:
            times_ms[partition] = max(0, start.time_ms)
        elif start.policy == "earliest":
            earliest.append(partition)
        elif start.policy == "latest":
            latest.append(partition)
        else:
            raise ValueError(f"{partition}: a start without offset, time or known policy: {start}")
    if times_ms:
        asked = {client_partition(partition): time for partition, time in times_ms.items()}
        found = consumer.offsets_for_times(asked, timeout_ms=LOOKUP_TIMEOUT_MS)
        for partition in times_ms:
            if (first := found.get(partition)) is not None:
                offsets[partition] = first.offset
            else:
                latest.append(partition)
    offsets |= beginning_offsets(consumer, earliest)
    return offsets | end_offsets(consumer, latest)


def _bounds(ask: Any, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    asked = [client_partition(partition) for partition in partitions]
    if not asked:
        return {}
    found = ask(asked, timeout_ms=LOOKUP_TIMEOUT_MS)
    return {TopicPartition(*partition): offset for partition, offset in found.items()}
