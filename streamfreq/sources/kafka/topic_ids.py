"""Fetches records by the id of their topic, so that they are of that topic and of no other.

A topic that is deleted and made again has the same name and another id. Kafka knows ids from 2.8
on and can be asked for records by id from 3.1 on (fetch request version 13); client 3.0.12 knows
the ids and the layout of that request, but asks by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import kafka.errors as kafka_errors
from kafka.protocol.consumer import FetchRequest

_BY_ID_VERSION = 13


class TopicIds:
    """The topics that a consumer reads: the first id seen under each name, for good.

    Replaces what makes the consumer's fetch requests and what takes their answers. What is asked
    for under an id that is no longer there comes back as an error, never as another topic's
    records. With brokers older than 3.1 records are fetched by name, and `text` is empty.
    """

    def __init__(self, consumer: Any, client: Any) -> None:
        self._manager = client._manager
        self._ids: dict[str, UUID] = {}
        self._names: dict[UUID, str] = {}
        self._by_name = not self._supported()
        self._make_requests = consumer._fetcher._create_fetch_requests
        self._take_response = consumer._fetcher._handle_fetch_response
        consumer._fetcher._create_fetch_requests = self._requests
        consumer._fetcher._handle_fetch_response = self._response

    def text(self, topic: str) -> str:
        """The topic's id as it stands in batches; empty when it is not known for sure."""
        return "" if self._by_name or topic not in self._ids else str(self._ids[topic])

    def pin(self, topic: str) -> bool:
        """Whether the topic's id is known now, or never will be; if not, metadata are on the way.

        To be called before the broker is asked for offsets in it: they are then of this very
        topic, or of one that can't be read any more.
        """
        if topic in self._ids:
            return True
        found = self._manager.cluster.topic_id(topic)
        if found is not None:
            self._names[found] = topic
            self._ids[topic] = found
            return True
        if not self._by_name:
            self._manager.cluster.request_update()
        return self._by_name

    def remade(self, topics: Iterable[str]) -> str | None:
        """One of `topics` that was deleted and made again, as far as the metadata tell."""
        for topic in topics:
            found = self._manager.cluster.topic_id(topic)
            if found is not None and self.pin(topic) and self._ids[topic] != found:
                return topic
        return None

    def _supported(self) -> bool:
        versions = self._manager.broker_version_data
        try:
            return bool(versions and versions.api_version(FetchRequest) >= _BY_ID_VERSION)
        except kafka_errors.IncompatibleBrokerVersion:
            return False

    def _requests(self) -> Any:
        """Called by the client on its network thread: its requests, by id where all are known."""
        requests = self._make_requests()
        for request, _ in requests.values():
            named = [*request.topics, *request.forgotten_topics_data]
            if not self._by_name and all(self.pin(item.topic) for item in named):
                for item in named:
                    item.topic_id = self._ids[item.topic]
                request._max_version = _BY_ID_VERSION
        return requests

    def _response(self, node_id: Any, offsets: Any, sent_at: float, response: Any) -> None:
        """Called by the client on its network thread, which knows topics by name alone."""
        if response.API_VERSION >= _BY_ID_VERSION:
            for item in response.responses:
                item.topic = self._names[item.topic_id]
        else:
            # An older broker of a mixed cluster: whose records these are nobody can say.
            self._by_name = True
        self._take_response(node_id, offsets, sent_at, response)
