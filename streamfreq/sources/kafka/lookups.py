"""Where to begin: StartAt as offsets, by as few requests as there are kinds of start."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import kafka
import kafka.errors as kafka_errors

from streamfreq.clock import Clock
from streamfreq.records import TopicPartition
from streamfreq.sources.base import StartAt
from streamfreq.sources.kafka.session import ClientSession

_log = logging.getLogger(__name__)

LOOKUP_TIMEOUT_MS = 5_000
LOOKUP_PAUSE_SECONDS = 5.0
"""After a lookup that failed: what is being read is polled meanwhile."""


class Lookups:
    """Starts as offsets, as far as the brokers can say now; the rest waits for a later call."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due = 0.0
        self._leaderless: set[TopicPartition] = set()

    def given(
        self, session: ClientSession, starts: Mapping[TopicPartition, StartAt]
    ) -> dict[TopicPartition, int]:
        """The starts that are offsets, where it is known of which topic they are to be."""
        return {
            partition: start.offset
            for partition, start in starts.items()
            if start.offset is not None and session.topic_ids.pin(partition.topic)
        }

    def found(
        self, session: ClientSession, starts: Mapping[TopicPartition, StartAt]
    ) -> dict[TopicPartition, int]:
        """The others, looked up; nothing for a while after that failed.

        Raises the client's KafkaError, after about 5 s when no broker answers.
        """
        wanted = {
            partition: start
            for partition, start in starts.items()
            if start.offset is None and session.topic_ids.pin(partition.topic)
        }
        leaderless = {partition for partition in wanted if not session.has_leader(partition)}
        for partition in sorted(leaderless - self._leaderless):
            _log.warning("%s has no leader now; it is read once a broker leads it", partition)
        self._leaderless = leaderless
        ready = {key: start for key, start in wanted.items() if key not in leaderless}
        if not ready or self._clock.monotonic() < self._due:
            return {}
        try:
            return resolve(session.consumer, ready)
        except kafka_errors.KafkaError:
            self._due = self._clock.monotonic() + LOOKUP_PAUSE_SECONDS
            raise


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
