"""The daemon's threads and their order: polling, tokenizing, counting, and the schedule's jobs.

The poll thread only polls: tokenizing, counting, committing and publishing happen in other
threads, so that the consumer group never waits for them.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from streamfreq.clock import Clock
from streamfreq.config import ScheduleConfig
from streamfreq.daemon.assignment import Assignment
from streamfreq.daemon.backoff import Backoff
from streamfreq.daemon.committer import Committer
from streamfreq.daemon.worker import CountingThreads, WorkQueue
from streamfreq.errors import ServiceUnavailable, StreamfreqError
from streamfreq.publisher import Publisher
from streamfreq.records import NO_TIMESTAMP, TopicPartition
from streamfreq.scheduling import Schedule
from streamfreq.sources.base import Source, StartAt
from streamfreq.telemetry import Health, Metrics

log = logging.getLogger("streamfreq.daemon")

POLL_TIMEOUT_MS = 200
LAG_INTERVAL_SECONDS = 2.0
PROGRESS_INTERVAL_SECONDS = 60.0
OTHERS_COMMIT_SECONDS = 0.3
"""Enough for a commit in ordinary times; who is slower is in the next snapshot."""
STORE_PATIENCE_SECONDS = 3.0
"""A store that takes longer to answer is not ready, though the call may still succeed."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the daemon works with."""

    source: Source
    assignment: Assignment
    queue: WorkQueue
    counting: CountingThreads
    committer: Committer
    publisher: Publisher
    metrics: Metrics
    health: Health
    clock: Clock
    on_closed: Callable[[], None]


class Daemon:
    """Counts a source's records until `stop`, or until it has caught up.

    `build_daemon` puts one together from a configuration; `run` is called once.
    """

    def __init__(self, parts: Parts, config: ScheduleConfig) -> None:
        self._parts = parts
        self._config = config
        self._schedule = Schedule()
        self._stopping = threading.Event()
        self._watchdog: threading.Timer | None = None
        self._paused: set[TopicPartition] = set()
        self._source_backoff = Backoff()
        self._load_backoff = Backoff()
        self._load_due = 0.0
        self._starts: dict[TopicPartition, StartAt] = {}
        self._leading = False
        self._refused: StreamfreqError | None = None
        self._joined = False
        self._store_asked: float | None = None
        self._published_once = False
        self._progress_due = 0.0
        self._measured: set[TopicPartition] = set()
        self._lag_due = 0.0

    @property
    def metrics(self) -> Metrics:
        """What it has done."""
        return self._parts.metrics

    @property
    def health(self) -> Health:
        """How it is."""
        return self._parts.health

    def stop(self) -> None:
        """End in order: commit, leave the group. A signal handler may call it.

        From now on `shutdown_timeout_seconds` runs, whatever the daemon is waiting for.
        """
        self._stopping.set()
        self._watch_the_end()

    def _watch_the_end(self) -> None:
        if self._watchdog is None:
            timeout = self._config.shutdown_timeout_seconds
            self._watchdog = threading.Timer(timeout, _give_up, [timeout])
            self._watchdog.daemon = True
            self._watchdog.start()

    def run(self, *, until_caught_up: bool = False) -> None:
        """Poll until stopped; then finish, commit, and leave the group.

        Raises the StreamfreqError that made going on impossible, after committing what was
        counted in front of it.
        """
        parts = self._parts
        caught_up = False
        self._schedule_jobs()
        parts.counting.start()
        try:
            self._open()
            self._schedule.start()
            while not self._stopping.is_set() and parts.counting.error is None:
                polled = self._step()
                if until_caught_up and not polled and self._caught_up():
                    log.info("caught up")
                    caught_up = True
                    break
        finally:
            done = self._finish(publish=caught_up)
        if parts.counting.error is not None:
            raise parts.counting.error
        if not done and self._refused is not None:
            raise self._refused
        if not done:
            raise ServiceUnavailable(
                "ended, but the store did not take the last commit or snapshot (see above); "
                "what is not committed is read again at the next start"
            )

    def commit(self) -> None:
        """Commit every changed partition; the schedule calls it.

        The first commit is published at once, so that nobody waits a whole interval to see it.
        """
        changed = any(item.dirty for item in self._parts.assignment.current())
        safe = self._parts.committer.commit(self._parts.assignment.current())
        if changed and safe and not self._published_once and not self._stopping.is_set():
            self._published_once = True
            self._schedule.run_now("publish")

    def publish_turn(self) -> None:
        """So that a snapshot holds what came until its turn; the schedule calls it.

        1. Commit. All daemons of the job have this turn at the same time.
        2. The publisher gives the others a moment for that.
        3. Publish.
        """
        self.commit()  # 1
        ours = {item.partition for item in self._parts.assignment.current()}
        if self._leading and self._parts.publisher.counts_of_others(ours):
            self._stopping.wait(OTHERS_COMMIT_SECONDS)  # 2
        self.publish()  # 3

    def publish(self) -> bool:
        """Publish a snapshot if this daemon is the publisher.

        False when it was our turn and failed.
        """
        parts = self._parts
        begun = parts.clock.monotonic()
        try:
            snapshot = parts.publisher.publish()
        except StreamfreqError as error:
            parts.metrics.publish_failed()
            if isinstance(error, ServiceUnavailable):
                parts.metrics.service_failed("store")
                parts.health.set("store", False, str(error))
            else:
                self._refused = error
            log.warning("not published: %s", error)
            return False
        finally:
            held = parts.publisher.held
            parts.metrics.publish_held(bool(held))
            parts.health.set("snapshots", not held, held)
        if snapshot is not None:
            seconds = parts.clock.monotonic() - begun
            parts.metrics.published(
                snapshot.version, snapshot.created_at_ms, snapshot.as_of_ms, seconds
            )
            log.info("published snapshot %d in %.0f ms", snapshot.version, seconds * 1000)
        return True

    def _schedule_jobs(self) -> None:
        config = self._config
        self._schedule.every("commit", config.commit_interval_seconds, self.commit)
        self._schedule.every("lease", self._parts.publisher.turn_seconds, self._keep_lease)
        if config.publish_cron:
            self._schedule.cron("publish", config.publish_cron, self.publish_turn)
        else:
            interval = config.publish_interval_seconds
            self._schedule.every("publish", interval, self.publish_turn, together=True)

    def _keep_lease(self) -> None:
        """Also how an idle daemon notices that the store is away, or back."""
        parts = self._parts
        self._store_asked = parts.clock.monotonic()
        try:
            leads = parts.publisher.keep_lease()
            latest = parts.publisher.latest_info()
        except ServiceUnavailable as error:
            parts.health.set("store", False, str(error))
            return
        finally:
            self._store_asked = None
        if latest is not None:
            parts.metrics.snapshot_seen(latest.version, latest.created_at_ms, latest.as_of_ms)
        if leads and not self._leading and not self._stopping.is_set():
            # The publisher before us may have died a whole interval ago.
            self._schedule.run_now("publish")
        self._leading = leads
        parts.health.set("store", True)

    def _open(self) -> None:
        parts = self._parts
        parts.health.set("source", False, "not joined yet")
        parts.health.set("store", False, "not asked yet")
        while not self._stopping.is_set():
            parts.health.beat("poll")
            try:
                parts.source.open(parts.assignment)
                log.info("waiting for partitions (a member that vanished has to time out first)")
                return
            except ServiceUnavailable as error:
                self._source_away(error)

    def _step(self) -> bool:
        """One poll and what goes with it; whether any batch arrived."""
        parts = self._parts
        parts.health.beat("poll")
        asked = self._store_asked
        if asked is not None and parts.clock.monotonic() - asked > STORE_PATIENCE_SECONDS:
            parts.health.set("store", False, "does not answer")
        try:
            self._load_pending()
            self._back_pressure()
            batches = parts.source.poll(POLL_TIMEOUT_MS)
            for batch in batches:
                partition = parts.assignment.get(batch.partition)
                if partition is not None:
                    parts.queue.put((partition, batch))
            self._measure_lag()
            parts.source.report_position(parts.committer.take_positions())
        except ServiceUnavailable as error:
            self._source_away(error)
            return False
        self._source_backoff.reset()
        if self._joined:
            parts.health.set("source", True)
        return bool(batches)

    def _source_away(self, error: ServiceUnavailable) -> None:
        parts = self._parts
        parts.metrics.service_failed("source")
        parts.health.set("source", False, str(error))
        delay = self._source_backoff.next_seconds()
        log.warning("%s (next try in %.1f s)", error, delay)
        self._stopping.wait(delay)

    def _load_pending(self) -> None:
        """Partitions whose checkpoint could not be read, or that closed in conflict, come back."""
        parts = self._parts
        conflicts = parts.assignment.collect_conflicts()
        if conflicts:
            parts.source.pause(conflicts)
        if parts.assignment.unloaded and parts.clock.monotonic() >= self._load_due:
            loaded = parts.assignment.load_pending()
            self._starts.update(loaded)
            if parts.assignment.unloaded and not loaded:
                self._load_due = parts.clock.monotonic() + self._load_backoff.next_seconds()
            else:
                self._load_backoff.reset()
        # A start stays until the source has it: the broker may be away when it is looked up.
        for partition, start in list(self._starts.items()):
            if parts.assignment.get(partition) is not None:
                parts.source.seek(partition, start)
                parts.source.resume([partition])
                self._paused.discard(partition)
            del self._starts[partition]
        waiting = parts.assignment.unloaded
        parts.health.set(
            "checkpoints", not waiting, f"{len(waiting)} partitions wait for their checkpoint"
        )

    def _back_pressure(self) -> None:
        parts = self._parts
        ours = {item.partition for item in parts.assignment.current()}
        if parts.queue.full:
            # All of them: one that was assigned anew meanwhile is not paused any more.
            parts.source.pause(ours)
            self._paused = ours
        elif self._paused and parts.queue.drained:
            parts.source.resume(self._paused & ours)
            self._paused = set()

    def _measure_lag(self) -> None:
        parts = self._parts
        now = parts.clock.monotonic()
        if self._joined and now < self._lag_due:
            return
        self._lag_due = now + LAG_INTERVAL_SECONDS
        ends = parts.source.end_offsets()
        if ends is None:
            return
        self._joined = True
        current = parts.assignment.current()
        total = 0
        for item in current:
            end = ends.get(item.partition)
            if end is not None:
                lag = max(0, end - (item.next_offset or 0))
                parts.metrics.set_lag(item.partition, lag)
                total += lag
        ours = {item.partition for item in current}
        for gone in self._measured - ours:
            parts.metrics.drop_partition(gone)
        self._measured = ours
        parts.metrics.set_partitions(len(ours))
        self._log_progress(now, len(ours), total)
        parts.metrics.set_ready(parts.health.report().ready)
        watermark_ms = max((item.watermark_ms for item in current), default=NO_TIMESTAMP)
        if watermark_ms != NO_TIMESTAMP:
            parts.metrics.watermark(watermark_ms)

    def _log_progress(self, now: float, partitions: int, lag: int) -> None:
        if now >= self._progress_due:
            self._progress_due = now + PROGRESS_INTERVAL_SECONDS
            log.info("%d partitions, lag %d records", partitions, lag)

    def _caught_up(self) -> bool:
        parts = self._parts
        if parts.assignment.unloaded or not parts.queue.idle:
            return False
        try:
            ends = parts.source.end_offsets()
        except ServiceUnavailable as error:
            self._source_away(error)
            return False
        if ends is None:
            return False
        positions = {item.partition: item.next_offset or 0 for item in parts.assignment.current()}
        return all(positions.get(key, -1) >= end for key, end in ends.items())

    def _finish(self, *, publish: bool) -> bool:
        """End in order, within the configured time; whether everything that was due is done.

        1. Stop the schedule, then the counting threads after the batches in hand; what is queued
           behind it is read again by the next owner.
        2. Commit what is counted.
        3. After catching up, publish what all workers have committed.
        4. Give back the lease, leave the group, close what is open.
        """
        parts = self._parts
        timeout = self._config.shutdown_timeout_seconds
        self._watch_the_end()
        parts.health.set("source", False, "shutting down")
        self._schedule.stop(timeout / 4)  # 1
        parts.counting.stop(timeout / 4)
        self.commit()  # 2
        done = not any(item.dirty for item in parts.assignment.current())
        if publish:
            self._wait_for_lease()  # 3
            done = self.publish() and not parts.publisher.held and done
        try:
            parts.publisher.release()  # 4
        except ServiceUnavailable as error:
            log.warning("the lease expires by itself: %s", error)
        try:
            parts.source.report_position(parts.committer.take_positions())
            parts.source.close()
        except ServiceUnavailable as error:
            log.warning("the group notices by itself that this worker is gone: %s", error)
        parts.on_closed()
        if self._watchdog is not None:
            self._watchdog.cancel()
        log.info("ended")
        return done

    def _wait_for_lease(self) -> None:
        """A worker that also ends soon may hold the lease; one that stays publishes for us."""
        parts = self._parts
        publisher = parts.publisher
        longest = self._config.shutdown_timeout_seconds / 2
        wait_seconds = min(publisher.lease_seconds + 3 * publisher.turn_seconds, longest)
        deadline = parts.clock.monotonic() + wait_seconds
        try:
            while not publisher.keep_lease() and parts.clock.monotonic() < deadline:
                threading.Event().wait(0.1)
        except ServiceUnavailable as error:
            log.warning("no last snapshot: %s", error)


def _give_up(timeout_seconds: float) -> None:
    log.error(
        "not ended within shutdown_timeout_seconds = %g: ending now; what is not committed "
        "is read again",
        timeout_seconds,
    )
    os._exit(1)
