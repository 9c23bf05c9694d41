"""One connected consumer with what the client's public face does not tell.

Everything that leans on the client's inside is here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import kafka.errors as kafka_errors
from kafka import KafkaConsumer
from kafka.net.compat import KafkaNetClient

from streamfreq.config import KafkaConfig
from streamfreq.errors import DataRefused, count_anew
from streamfreq.records import TopicPartition
from streamfreq.sources.kafka.columns import read_columns
from streamfreq.sources.kafka.failures import translate
from streamfreq.sources.kafka.receiving import receive_directly
from streamfreq.sources.kafka.relay import Relay, Serve
from streamfreq.sources.kafka.topic_ids import TopicIds

_METADATA_TIMEOUT_MS = 5_000


class ClientSession:
    """A consumer, its network client, and the relay that serves its rebalances."""

    def __init__(self, consumer: Any, client: Any, serve: Serve) -> None:
        self.consumer = consumer
        self.relay = Relay(client._net, serve)
        self.topic_ids = TopicIds(consumer, client)
        self._client = client
        read_columns(consumer)
        receive_directly(client._manager)

    def subscribe(self, config: KafkaConfig) -> None:
        """Subscribe to the topics or the pattern; raises ValueError or TypeError for bad names.

        Waits a moment for the topics' metadata: who joins without is assigned nothing at first.
        """
        if config.topic_pattern:
            self.consumer.subscribe(pattern=config.topic_pattern, listener=self.relay)
        else:
            self.consumer.subscribe(topics=list(config.topics), listener=self.relay)
        manager = self._client._manager
        with contextlib.suppress(kafka_errors.KafkaError):
            manager.run(manager.wait_for, manager.cluster.request_update(), _METADATA_TIMEOUT_MS)

    def poll(self, timeout_ms: int) -> Mapping[Any, list[Any]]:
        """The client's poll."""
        coordinator = self.consumer._coordinator
        if coordinator.rejoining:
            # A poll may end while a rebalance is under way. When new metadata began it, client
            # 3.0.12 takes it for done in the next poll, and never gets its partitions.
            coordinator.request_rejoin()
        polled: Mapping[Any, list[Any]] = self.consumer.poll(timeout_ms)
        return polled

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

    def has_leader(self, partition: TopicPartition) -> bool:
        """Whether a broker leads this partition, as far as is known; if not, metadata are asked."""
        if self._client.cluster.leader_for_partition(partition) not in (None, -1):
            return True
        self._client.cluster.request_update()
        return False

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; 0 when the client does not know."""
        return len(self._client.cluster.partitions_for_topic(topic) or ())

    def missing_topics(self, topics: Collection[str]) -> set[str]:
        """Those of `topics` that the client's metadata does not have."""
        cluster = self._client.cluster
        return {topic for topic in topics if not cluster.partitions_for_topic(topic)}

    def check_topic_ids(self, topics: Collection[str]) -> None:
        """Raises DataRefused when a topic of this session was deleted and made again."""
        if (topic := self.topic_ids.remade(topics)) is not None:
            raise DataRefused(
                f"topic {topic} was deleted and made again while it was read, so its offsets mean "
                f"other records now; {count_anew(topic)}"
            )

    def close(self, timeout_ms: int) -> None:
        """Leave the group and disconnect, within `timeout_ms` and a little."""
        self.consumer.close(autocommit=False, timeout_ms=timeout_ms)


def open_session(config: KafkaConfig, options: Mapping[str, Any], serve: Serve) -> ClientSession:
    """Connect a consumer whose rebalances go to `serve`; raises as `connect` does."""
    consumer, client = connect(KafkaConsumer, config, options)
    return ClientSession(consumer, client, serve)


def connect(kind: Callable[..., Any], config: KafkaConfig, options: Mapping[str, Any]) -> Any:
    """A client of this kind (consumer, producer, admin), and its network part.

    Raises ServiceUnavailable or ConfigError, leaving nothing behind.
    """
    networks: list[Any] = []

    def make_network(**configs: Any) -> Any:
        networks.append(KafkaNetClient(**configs))
        return networks[-1]

    try:
        client = kind(**options, kafka_client=make_network)
        # Client 3.0.12 takes this option but does not heed it.
        wanted = options.get("allow_auto_create_topics", True)
        networks[-1].cluster.config["allow_auto_create_topics"] = wanted
        return client, networks[-1]
    except (kafka_errors.KafkaError, ValueError, TypeError, AssertionError) as error:
        # The failed constructor leaves its network thread running.
        for network in networks:
            network.close()
        raise translate(error, config) from error
