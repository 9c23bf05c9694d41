"""Dead letters into a Kafka topic: the value as it was, the reason and the origin as headers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import kafka.errors as kafka_errors
from kafka import KafkaProducer

from streamfreq.config import KafkaConfig
from streamfreq.errors import ServiceUnavailable
from streamfreq.records import NO_TIMESTAMP
from streamfreq.sources.base import FLUSH_TIMEOUT_SECONDS, DeadLetter
from streamfreq.sources.kafka.client_log import tame_client_log
from streamfreq.sources.kafka.options import producer_options, servers
from streamfreq.sources.kafka.session import connect
from streamfreq.sources.letter_box import LetterBox

_CLOSE_TIMEOUT_SECONDS = 5.0


class KafkaDeadLetters:
    """The port DeadLetters over a producer; `put` and `flush` may be called by any thread.

    Headers: streamfreq-reason, -topic, -partition, -offset. Connects with the first letter.
    """

    def __init__(self, config: KafkaConfig, topic: str) -> None:
        self._config = config
        self._topic = topic
        self._options = producer_options(config)
        self._producer: Any = None
        self._box = LetterBox()
        self._flushing = threading.Lock()

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """Take these letters; they are sent by `flush`."""
        self._box.put(letters)

    def flush(self, timeout_seconds: float = FLUSH_TIMEOUT_SECONDS) -> None:
        """Send what was taken and wait for the broker.

        Raises ServiceUnavailable when it does not have them all; they are kept for the next
        `flush`, so some may be there twice.
        """
        if not self._flushing.acquire(timeout=timeout_seconds):
            raise ServiceUnavailable(
                f"dead letters for topic {self._topic} of Kafka at {servers(self._config)} are "
                f"not yet written after {timeout_seconds:g} s"
            )
        try:
            with self._box.taken() as letters:
                if letters:
                    self._write(letters, timeout_seconds)
        finally:
            self._flushing.release()

    def close(self) -> None:
        """Flush and disconnect."""
        try:
            self.flush()
        finally:
            if self._producer is not None:
                self._producer.close(timeout=_CLOSE_TIMEOUT_SECONDS)
                self._producer = None

    def _write(self, letters: Sequence[DeadLetter], timeout_seconds: float) -> None:
        if self._producer is None:
            tame_client_log()
            self._producer, _ = connect(KafkaProducer, self._config, self._options)
        producer = self._producer
        try:
            sent = [self._send(producer, letter) for letter in letters]
            producer.flush(timeout=timeout_seconds)
            for future in sent:
                future.get(timeout=0)
        except kafka_errors.KafkaError as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ServiceUnavailable(
                f"{len(letters)} dead letters could not be written to topic {self._topic} of "
                f"Kafka at {servers(self._config)}: {reason}; does the topic exist?"
            ) from error

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
