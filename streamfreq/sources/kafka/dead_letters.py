"""Dead letters into a Kafka topic: the value as it was, the reason and the origin as headers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import kafka.errors as kafka_errors
from kafka import KafkaProducer
from kafka.net.compat import KafkaNetClient

from streamfreq.config import KafkaConfig
from streamfreq.errors import ServiceUnavailable
from streamfreq.records import NO_TIMESTAMP
from streamfreq.sources.base import DeadLetter
from streamfreq.sources.kafka.client_log import tame_client_log
from streamfreq.sources.kafka.failures import translate
from streamfreq.sources.kafka.options import producer_options, servers

_FLUSH_TIMEOUT_SECONDS = 30.0


class KafkaDeadLetters:
    """The port DeadLetters over a producer; letters stay here until the broker has them.

    Headers: streamfreq-reason, -topic, -partition, -offset. Connects with the first letter.
    """

    def __init__(self, config: KafkaConfig, topic: str) -> None:
        self._config = config
        self._topic = topic
        self._options = producer_options(config)
        self._producer: Any = None
        self._letters: list[DeadLetter] = []

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """Take these letters; they are sent by `flush`."""
        self._letters.extend(letters)

    def flush(self) -> None:
        """Send what was taken and wait for the broker, about 30 s at most.

        Raises ServiceUnavailable when it does not have them all; they are kept for the next
        `flush`, so some may be there twice.
        """
        if not self._letters:
            return
        try:
            producer = self._connected()
            sent = [self._send(producer, letter) for letter in self._letters]
            producer.flush(timeout=_FLUSH_TIMEOUT_SECONDS)
            for future in sent:
                future.get(timeout=0)
        except kafka_errors.KafkaError as error:
            raise ServiceUnavailable(
                f"{len(self._letters)} dead letters could not be written to topic {self._topic} "
                f"of Kafka at {servers(self._config)}: {_reason(error)}; does the topic exist?"
            ) from error
        self._letters.clear()

    def close(self) -> None:
        """Flush and disconnect."""
        try:
            self.flush()
        finally:
            if self._producer is not None:
                self._producer.close(timeout=5)
                self._producer = None

    def _connected(self) -> Any:
        if self._producer is None:
            tame_client_log()
            clients: list[Any] = []

            def make_client(**configs: Any) -> Any:
                clients.append(KafkaNetClient(**configs))
                return clients[-1]

            try:
                self._producer = KafkaProducer(**self._options, kafka_client=make_client)
            except (kafka_errors.KafkaError, ValueError, TypeError, AssertionError) as error:
                for client in clients:
                    client.close()
                raise translate(error, self._config) from error
        return self._producer

    def _send(self, producer: Any, letter: DeadLetter) -> Any:
        topic, partition = letter.partition
        headers = [
            ("streamfreq-reason", letter.reason.encode()),
            ("streamfreq-topic", topic.encode()),
            ("streamfreq-partition", str(partition).encode()),
            ("streamfreq-offset", str(letter.offset).encode()),
        ]
        stamp = None if letter.timestamp_ms == NO_TIMESTAMP else letter.timestamp_ms
        return producer.send(self._topic, letter.value, headers=headers, timestamp_ms=stamp)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
