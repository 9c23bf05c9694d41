"""Kafka: the source, the dead-letter topic, and the probe of `streamfreq check`.

The only package that imports kafka-python. The client runs a thread of its own for the network;
`relay` brings its rebalance calls to the thread that polls.
"""

from streamfreq.sources.kafka.dead_letters import KafkaDeadLetters
from streamfreq.sources.kafka.probe import KafkaReach, probe_kafka
from streamfreq.sources.kafka.source import KafkaSource

__all__ = ["KafkaDeadLetters", "KafkaReach", "KafkaSource", "probe_kafka"]
