"""One connected consumer with what the client's public face does not tell.

Everything that leans on the client's inside is here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import kafka.errors as kafka_errors
from kafka import KafkaConsumer
from kafka.net.compat import KafkaNetClient

from streamfreq.config import KafkaConfig
from streamfreq.errors import DataRefused
from streamfreq.records import TopicPartition
from streamfreq.sources.kafka.failures import translate
from streamfreq.sources.kafka.relay import Relay


class ClientSession:
    """A consumer, its network client, and the relay that serves its rebalances."""

    relay: Relay

    def __init__(self, consumer: Any, client: Any) -> None:
        self.consumer = consumer
        self.net = client._net
        self._client = client
        self._topic_ids: dict[str, Any] = {}

    def connected(self) -> bool:
        """Whether any broker is connected."""
        connections = list(self._client._manager._conns.values())
        return any(connection.connected for connection in connections)

    def positions(self, partitions: Iterable[TopicPartition]) -> Iterator[tuple[Any, int]]:
        """The partitions that have a position, and the position: where reading goes on.

        Read from the client's table: its `position()` walks over all partitions at each call.
        """
        table = self.consumer._subscription.assignment
        for partition in partitions:
            state = table.get(partition)
            if state is not None and state.position is not None:
                yield partition, state.position.offset

    def missing_topics(self, topics: Collection[str]) -> set[str]:
        """Those of `topics` that the client's metadata does not have."""
        cluster = self._client.cluster
        return {topic for topic in topics if not cluster.partitions_for_topic(topic)}

    def check_topic_ids(self, topics: Collection[str]) -> None:
        """Raises DataRefused when a topic of this session was deleted and made again."""
        for topic in topics:
            found = self._client.cluster.topic_id(topic)
            if found is None:
                continue
            if self._topic_ids.setdefault(topic, found) != found:
                raise DataRefused(
                    f"topic {topic} was deleted and made again while it was read, so its offsets "
                    "mean other records now; count it under another name (job = ...), or delete "
                    "this job's checkpoints of the topic"
                )

    def close(self, timeout_ms: int) -> None:
        """Leave the group and disconnect, within `timeout_ms` and a little."""
        self.consumer.close(autocommit=False, timeout_ms=timeout_ms)


def open_session(config: KafkaConfig, options: dict[str, Any]) -> ClientSession:
    """Connect a consumer; raises ServiceUnavailable or ConfigError, leaving nothing behind."""
    clients: list[Any] = []

    def make_client(**configs: Any) -> Any:
        clients.append(KafkaNetClient(**configs))
        return clients[-1]

    try:
        consumer = KafkaConsumer(**options, kafka_client=make_client)
    except (kafka_errors.KafkaError, ValueError, TypeError, AssertionError) as error:
        # The failed constructor leaves its network thread running.
        for client in clients:
            client.close()
        raise translate(error, config) from error
    return ClientSession(consumer, clients[-1])
