"""Kafka: the source, the dead-letter topic, and what `check` and `demo` need of a broker.

The only package that imports kafka-python. The client runs a thread of its own for the network;
`relay` brings its rebalance calls to the thread that polls.
"""

from streamfreq.sources.kafka.dead_letters import KafkaDeadLetters
from streamfreq.sources.kafka.probe import list_topics, matching_topics
from streamfreq.sources.kafka.source import KafkaSource
from streamfreq.sources.kafka.writer import TopicWriter

__all__ = ["KafkaDeadLetters", "KafkaSource", "TopicWriter", "list_topics", "matching_topics"]
