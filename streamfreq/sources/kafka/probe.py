"""What `streamfreq check` asks a broker: is it there, and which topics does it have."""

from __future__ import annotations

import re
from collections.abc import Mapping

import kafka.errors as kafka_errors
from kafka import KafkaAdminClient

from streamfreq.config import KafkaConfig
from streamfreq.errors import ServiceUnavailable
from streamfreq.sources.kafka.client_log import tame_client_log
from streamfreq.sources.kafka.failures import translate
from streamfreq.sources.kafka.options import admin_options, consumer_options
from streamfreq.sources.kafka.session import connect


def list_topics(config: KafkaConfig) -> dict[str, int]:
    """Partition counts of the topics this user may see, without the broker's internal ones.

    Asks within about 10 s; raises ServiceUnavailable or ConfigError.
    """
    consumer_options(config, "check")  # also what only the consumer needs must be right
    tame_client_log()
    admin, _ = connect(KafkaAdminClient, config, admin_options(config))
    try:
        described = admin.describe_topics()
    except kafka_errors.KafkaError as error:
        raise translate(error, config) from error
    finally:
        admin.close()
    return {
        topic["name"]: len(topic["partitions"])
        for topic in sorted(described, key=lambda topic: str(topic["name"]))
        if topic["partitions"] and not topic["is_internal"]
    }


def matching_topics(config: KafkaConfig, topics: Mapping[str, int]) -> list[str]:
    """Those of `topics` that `topic_pattern` subscribes to: it matches from the name's start."""
    pattern = re.compile(config.topic_pattern)
    return [topic for topic in topics if pattern.match(topic)]


def check_topics(config: KafkaConfig) -> str:
    """What there is to read, in a phrase.

    Raises ServiceUnavailable when there is no broker, or a topic is not there.
    """
    topics = list_topics(config)
    wanted = config.topics or matching_topics(config, topics)
    missing = [topic for topic in wanted if topic not in topics]
    if missing or not wanted:
        named = ", ".join(missing) or f"none that matches {config.topic_pattern}"
        raise ServiceUnavailable(
            f"kafka.topics: {named} is not there; create it, or correct the name"
        )
    return ", ".join(f"{topic} with {topics[topic]} partitions" for topic in wanted)
