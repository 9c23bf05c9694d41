"""What `streamfreq check` asks a broker: is it there, and has it the topics."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import kafka.errors as kafka_errors
from kafka import KafkaAdminClient
from kafka.net.compat import KafkaNetClient

from streamfreq.config import KafkaConfig
from streamfreq.sources.kafka.client_log import tame_client_log
from streamfreq.sources.kafka.failures import translate
from streamfreq.sources.kafka.options import admin_options, consumer_options


@dataclass(frozen=True, slots=True)
class KafkaReach:
    """`brokers` that answered for the cluster; partitions of each topic, None: it is missing.

    With `topic_pattern` the topics are those that match it now.
    """

    brokers: int
    partitions: dict[str, int | None]


def probe_kafka(config: KafkaConfig) -> KafkaReach:
    """Ask the brokers, within about 10 s; raises ServiceUnavailable or ConfigError."""
    consumer_options(config, "probe")
    options = admin_options(config)
    tame_client_log()
    clients: list[Any] = []

    def make_client(**configs: Any) -> Any:
        clients.append(KafkaNetClient(**configs))
        return clients[-1]

    try:
        admin = KafkaAdminClient(**options, kafka_client=make_client)
    except (kafka_errors.KafkaError, ValueError, TypeError, AssertionError) as error:
        for client in clients:
            client.close()
        raise translate(error, config) from error
    try:
        brokers = len(admin.describe_cluster()["brokers"])
        return KafkaReach(brokers, _partitions(admin, config))
    except kafka_errors.KafkaError as error:
        raise translate(error, config) from error
    finally:
        admin.close()


def _partitions(admin: Any, config: KafkaConfig) -> dict[str, int | None]:
    if not config.topic_pattern:
        described = admin.describe_topics(list(config.topics))
        found = {topic["name"]: len(topic["partitions"]) or None for topic in described}
        return {topic: found.get(topic) for topic in config.topics}
    pattern = re.compile(config.topic_pattern)
    return {
        topic["name"]: len(topic["partitions"])
        for topic in sorted(admin.describe_topics(), key=lambda topic: str(topic["name"]))
        if pattern.match(topic["name"]) and not topic["is_internal"]
    }
