"""Records from Kafka topics, shared out by a consumer group.

The truth about positions is the listener's (the checkpoints): each assignment asks it where to
begin. What the group has committed is never read, and written only for lag tools.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

import kafka.errors as kafka_errors
from kafka.structs import OffsetAndMetadata

from streamfreq.clock import Clock
from streamfreq.config import KafkaConfig
from streamfreq.errors import (
    ConfigError,
    DataRefused,
    OffsetExpired,
    ServiceUnavailable,
    count_anew,
)
from streamfreq.records import RecordBatch, TopicPartition
from streamfreq.sources.base import AssignmentListener, StartAt
from streamfreq.sources.kafka.client_log import forget_failure, tame_client_log
from streamfreq.sources.kafka.columns import join_columns
from streamfreq.sources.kafka.failures import translate, unreachable
from streamfreq.sources.kafka.lookups import (
    Lookups,
    beginning_offsets,
    client_partition,
    end_offsets,
)
from streamfreq.sources.kafka.options import consumer_options
from streamfreq.sources.kafka.relay import Rebalance
from streamfreq.sources.kafka.session import ClientSession, open_session
from streamfreq.sources.kafka.topic_watch import TopicWatch
from streamfreq.sources.placement import Placement

_log = logging.getLogger(__name__)
_AWAY_GRACE_SECONDS = 2.0
_CLOSE_TIMEOUT_MS = 5_000


class KafkaSource:
    """The port Source over kafka-python; see `streamfreq.sources.base` for the promises.

    A partition is held paused until the listener has said where it begins and that is an offset.
    """

    def __init__(self, config: KafkaConfig, group_id: str, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._options = consumer_options(config, group_id)
        self._listener: AssignmentListener | None = None
        self._session: ClientSession | None = None
        self._placement = Placement()
        self._paused: set[TopicPartition] = set()
        self._joined = False
        self._listener_error: Exception | None = None
        self._away_since: float | None = None
        self._topics = TopicWatch()
        self._lookups = Lookups(clock)

    def open(self, listener: AssignmentListener) -> None:
        """Connect and subscribe; assignments arrive in later polls.

        Raises ServiceUnavailable within about 10 s when no broker answers (call it again), and
        ConfigError when the client refuses its options.
        """
        tame_client_log()
        self._listener = listener
        session = open_session(self._config, self._options, self._rebalance)
        try:
            session.subscribe(self._config)
        except (ValueError, TypeError) as error:
            session.relay.run(session.close, _CLOSE_TIMEOUT_MS)
            session.relay.stop()
            raise ConfigError(f"kafka.topics: {error}") from None
        self._session = session
        self._watch_topics()

    def poll(self, timeout_ms: int) -> list[RecordBatch]:
        """Batches of the assigned partitions, or nothing after `timeout_ms`."""
        session = self._opened
        self._raise_listener_error()
        self._placement.ask(self._told)
        trouble = self._try_to_place()
        try:
            polled = session.relay.run(session.poll, timeout_ms)
        except kafka_errors.OffsetOutOfRangeError as error:
            polled = {}
            for partition, offset in error.args[0].items():
                self._out_of_range(TopicPartition(*partition), offset)
        except kafka_errors.KafkaError as error:
            raise translate(error, self._config) from error
        batches = self._batches(polled)
        if not batches:
            self._raise_listener_error()
            self._raise_if_away()
            if trouble is not None:
                raise trouble
        self._watch_topics()
        session.check_topic_ids({partition.topic for partition in self._placement.next_offsets})
        return batches

    def seek(self, partition: TopicPartition, start: StartAt) -> None:
        """Read on from `start`; nothing happens for a partition that is not ours.

        Raises ServiceUnavailable when the broker can't say where that is; the next `poll` asks it
        again before it reads.
        """
        if self._placement.want(partition, start):
            self._place()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Hold these partitions until `resume`, or until they are assigned anew."""
        ours = self._placement.assigned.intersection(partitions)
        self._paused |= ours
        self._opened.consumer.pause(*map(client_partition, ours))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Undo `pause`."""
        self._paused.difference_update(partitions)
        ready = set(self._placement.next_offsets).intersection(partitions)
        self._opened.consumer.resume(*map(client_partition, ready))

    def end_offsets(self) -> Mapping[TopicPartition, int] | None:
        """The end of each assigned partition; with read_committed, of what is committed."""
        session = self._opened
        settled = self._joined and self._placement.settled and not self._topics.awaited
        if not settled or not session.connected():
            return None
        try:
            return end_offsets(session.consumer, self._placement.assigned)
        except kafka_errors.KafkaError as error:
            _log.debug("end offsets: %s", error)
            return None

    def report_position(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit `offsets` to the group, without waiting; a failure is only logged."""
        assigned = self._placement.assigned
        ours = {
            client_partition(partition): OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
            if partition in assigned
        }
        if not ours:
            return
        try:
            self._opened.consumer.commit_async(ours, callback=_log_commit)
        except (kafka_errors.KafkaError, RuntimeError) as error:  # the latter once it is closed
            _log.debug("positions were not reported: %s", error)

    def close(self) -> None:
        """Leave the group, within about 5 s; the listener hears `on_revoked` before."""
        session = self._session
        if session is None:
            return
        try:
            session.relay.run(session.close, _CLOSE_TIMEOUT_MS)
        except kafka_errors.KafkaError as error:
            _log.debug("leaving the group: %s", error)
        finally:
            session.relay.stop()
            # What the client did not revoke by itself, as it was not in the group any more.
            self._rebalance("revoked", sorted(self._placement.assigned))
            self._session = None
        self._raise_listener_error()

    @property
    def _opened(self) -> ClientSession:
        if self._session is None:
            raise RuntimeError("the Kafka source is not open")
        return self._session

    # Assignment

    def _rebalance(self, kind: Rebalance, partitions: list[TopicPartition]) -> None:
        """Serve one rebalance call; what the listener raises is kept for `poll`."""
        try:
            if kind == "assigned":
                self._joined = True
                self._take(partitions)
                self._place()
            else:
                self._give_up(kind, partitions)
        except Exception as error:
            self._listener_error = error

    def _take(self, partitions: list[TopicPartition]) -> None:
        consumer = self._opened.consumer
        for partition in set(partitions) - self._placement.assigned:
            # Without a position the client would look for one in the group's commits.
            held = client_partition(partition)
            consumer.pause(held)
            consumer.seek(held, 0)
            self._placement.fresh.add(partition)

    def _place(self) -> None:
        """Ask where fresh partitions begin, look up what that is, and read from there.

        What can't be looked up now waits, and keeps no other partition from being read.
        """
        self._placement.ask(self._told)
        session, lookups = self._opened, self._lookups
        self._begin(lookups.given(session, self._placement.starts))
        try:
            self._begin(lookups.found(session, self._placement.starts))
        except kafka_errors.KafkaError as error:
            raise translate(error, self._config) from error

    def _begin(self, offsets: Mapping[TopicPartition, int]) -> None:
        consumer = self._opened.consumer
        for partition, offset in offsets.items():
            consumer.seek(client_partition(partition), offset)
        self._placement.place(offsets)
        consumer.resume(*map(client_partition, set(offsets) - self._paused))

    def _try_to_place(self) -> ServiceUnavailable | None:
        try:
            self._place()
        except ServiceUnavailable as error:
            return error
        return None

    def _give_up(self, kind: Rebalance, partitions: list[TopicPartition]) -> None:
        known = self._placement.told(partitions)
        try:
            if known and kind == "revoked":
                self._told.on_revoked(known)
            elif known:
                self._told.on_lost(known)
        finally:
            self._placement.forget(partitions)
            self._paused.difference_update(partitions)
            self._joined = bool(self._placement.assigned)

    @property
    def _told(self) -> AssignmentListener:
        assert self._listener is not None
        return self._listener

    def _out_of_range(self, partition: TopicPartition, offset: int) -> None:
        """The broker does not have `offset`: it expired, or the log is another one."""
        consumer = self._opened.consumer
        if self._placement.next_offsets.get(partition) != offset:
            return
        try:
            beginning = beginning_offsets(consumer, [partition])[partition]
            end = end_offsets(consumer, [partition])[partition]
        except kafka_errors.KafkaError as error:
            raise translate(error, self._config) from error
        if beginning <= offset <= end:
            return  # it is there after all: the broker was not up to date
        if offset > end:
            raise DataRefused(
                f"{partition}: the next offset {offset} is beyond the end of the log ({end}): the "
                "topic was deleted and made again, or has lost records; "
                f"{count_anew(partition.topic)}"
            )
        policy = self._config.expired_offset
        if policy == "fail":
            raise OffsetExpired(
                f"{partition}: the broker no longer has offset {offset}, it begins at {beginning}; "
                "to go on with a gap set kafka.expired_offset to earliest or latest"
            )
        onwards = beginning if policy == "earliest" else end
        _log.warning(
            "%s: GAP, offsets %d to %d are not counted: the broker begins at %d now; "
            "reading on at %d (kafka.expired_offset = %s)",
            *(partition, offset, onwards - 1, beginning, onwards, policy),
        )
        self._told.on_gap(partition, offset, onwards)
        consumer.seek(client_partition(partition), onwards)

    # Reading

    def _batches(self, polled: Mapping[Any, list[Any]]) -> list[RecordBatch]:
        topic_id = self._opened.topic_ids.text
        batches = [
            RecordBatch.empty(
                partition,
                offset,
                topic_id(partition.topic),
                self._opened.partition_count(partition.topic),
            )
            for partition, offset in self._placement.tell()
        ]
        known = self._placement.next_offsets
        for partition, next_offset in self._opened.positions(list(known)):
            records = polled.get(partition)
            news = self._placement.moved(partition, next_offset)
            of = topic_id(partition.topic)
            if records:
                batches.append(_columns(partition, records, next_offset, of))
            elif news:
                # Only control records, aborted transactions, compacted holes or a gap were there.
                batches.append(RecordBatch.empty(partition, next_offset, of))
        return batches

    # Trouble

    def _raise_listener_error(self) -> None:
        error, self._listener_error = self._listener_error, None
        if error is not None:
            raise error

    def _raise_if_away(self) -> None:
        now = self._clock.monotonic()
        if self._opened.connected():
            self._away_since = None
            forget_failure()
        elif self._away_since is None:
            self._away_since = now
        elif now - self._away_since >= _AWAY_GRACE_SECONDS:
            raise unreachable(self._config)

    def _watch_topics(self) -> None:
        missing = self._opened.missing_topics(self._config.topics)
        self._topics.look(self._config.topics, missing, self._clock.monotonic())


def _columns(
    partition: TopicPartition, records: list[Any], next_offset: int, topic_id: str
) -> RecordBatch:
    columns = join_columns(records)
    return RecordBatch(
        partition, columns.offsets, columns.timestamps_ms, columns.values, next_offset, topic_id
    )


def _log_commit(offsets: Any, answer: Any) -> None:
    if isinstance(answer, Exception):
        _log.debug("positions were not reported: %s", answer)
