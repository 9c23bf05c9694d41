"""Puts records into a topic: what the demo feeds its own daemon with."""

from __future__ import annotations

from typing import Any

import kafka.errors as kafka_errors
from kafka import KafkaAdminClient, KafkaProducer

from streamfreq.config import KafkaConfig
from streamfreq.errors import ServiceUnavailable
from streamfreq.sources.kafka.client_log import tame_client_log
from streamfreq.sources.kafka.failures import translate
from streamfreq.sources.kafka.options import admin_options, producer_options
from streamfreq.sources.kafka.session import connect

_FLUSH_TIMEOUT_SECONDS = 30.0


class TopicWriter:
    """A producer for one topic, which is made when it is not there.

    `servers` is HOST:PORT, several with commas. Raises ServiceUnavailable when there is no broker.
    """

    def __init__(self, servers: str, topic: str, partitions: int = 1) -> None:
        self._config = KafkaConfig.model_validate({"bootstrap_servers": servers})
        self._topic = topic
        tame_client_log()
        self._create(partitions)
        options = {**producer_options(self._config), "linger_ms": 20}
        self._producer: Any = connect(KafkaProducer, self._config, options)[0]

    def send(self, value: bytes) -> None:
        """Hand over one record; the broker has it after `flush`."""
        try:
            self._producer.send(self._topic, value)
        except kafka_errors.KafkaError as error:
            raise translate(error, self._config) from error

    def flush(self) -> None:
        """Return when the broker has every record; raises ServiceUnavailable otherwise."""
        try:
            self._producer.flush(timeout=_FLUSH_TIMEOUT_SECONDS)
        except kafka_errors.KafkaError as error:
            raise translate(error, self._config) from error

    def close(self) -> None:
        """Disconnect; records that no `flush` has waited for may be lost."""
        self._producer.close(timeout=1)

    def _create(self, partitions: int) -> None:
        admin, _ = connect(KafkaAdminClient, self._config, admin_options(self._config))
        topic = {"num_partitions": partitions, "replication_factor": -1}
        try:
            admin.create_topics({self._topic: topic}, wait_for_metadata=True)
        except kafka_errors.TopicAlreadyExistsError:
            return
        except kafka_errors.KafkaError as error:
            raise ServiceUnavailable(
                f"topic {self._topic} could not be created: {translate(error, self._config)}"
            ) from error
        finally:
            admin.close()
