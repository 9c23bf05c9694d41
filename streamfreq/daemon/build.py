"""The one place where a daemon is put together from a configuration."""

from __future__ import annotations

import os
import socket
import uuid

from streamfreq.checkpoints import open_checkpoints
from streamfreq.clock import Clock, SystemClock
from streamfreq.config import Config, SnapshotsConfig
from streamfreq.counting import EventTimes, device_memory_bytes, pick_device
from streamfreq.daemon.assignment import Assignment, CountersSpec, Told
from streamfreq.daemon.committer import Committer
from streamfreq.daemon.daemon import Daemon, Parts
from streamfreq.daemon.pipeline import Tokenization
from streamfreq.daemon.worker import BatchCounter, CountingThreads, WorkQueue
from streamfreq.publisher import Publisher, Recipe
from streamfreq.snapshots import open_lease, open_snapshots
from streamfreq.sources import open_dead_letters, open_source
from streamfreq.sources.base import Source, StartAt
from streamfreq.telemetry import Health, Metrics, TelemetryServer
from streamfreq.text import TextPipeline
from streamfreq.tokenization import load_tokenizer
from streamfreq.tokenization.base import Tokenizer
from streamfreq.weighting import validate

QUEUE_BYTES = 64 * 1024 * 1024
"""Polled but not yet counted: the source pauses above it."""
BATCH_BYTES = 4 * 1024 * 1024
"""About how much text one call of the tokenizer engine gets."""
LEASE_SHARE = 0.4
"""Of a publish interval: with the time to notice and to hear the others out it stays below one."""
SHORTEST_LEASE_SECONDS = 3.0
"""A shorter lease would be lost to a store that is slow for a moment."""


def counters_spec(config: Config, tokenizer: Tokenizer) -> CountersSpec:
    """The shape of the counters for this configuration and tokenizer."""
    return CountersSpec(
        half_lives_seconds=config.counting.horizons_seconds,
        vocab_size=tokenizer.vocab_size,
        documents=config.counting.documents,
        device=pick_device(config.counting.device),
        ids_per_token=tokenizer.ids_per_token,
        fingerprint=tokenizer.fingerprint,
    )


def start_at(config: Config, now_ms: int) -> StartAt:
    """Where partitions without a checkpoint begin."""
    kafka = config.kafka
    if config.source.kind != "kafka" or kafka.start != "lookback":
        return StartAt(policy="earliest" if config.source.kind != "kafka" else kafka.start)
    finite = [h for h in config.counting.horizons_seconds if h != float("inf")]
    if not finite:
        return StartAt(policy="earliest")
    return StartAt(time_ms=max(0, now_ms - round(max(finite) * kafka.lookback_half_lives * 1000)))


def with_short_lease(config: Config) -> SnapshotsConfig:
    """The section [snapshots] with a lease of at most `LEASE_SHARE` of a publish interval.

    A publisher that dies just before its turn is then replaced before the turn after that one.
    """
    schedule, snapshots = config.schedule, config.snapshots
    if schedule.publish_cron:
        return snapshots
    longest = max(schedule.publish_interval_seconds * LEASE_SHARE, SHORTEST_LEASE_SECONDS)
    lease_seconds = min(snapshots.lease_seconds, longest)
    return snapshots.model_copy(update={"lease_seconds": lease_seconds})


def worker_name() -> str:
    """Names this daemon in leases: host, process id, and a part that no restart repeats."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def build_daemon(
    config: Config, *, source: Source | None = None, clock: Clock | None = None
) -> Daemon:
    """A daemon ready to `run`, with its metrics served; `source` replaces the configured one.

    Raises ConfigError for what can be known to be wrong before the services are asked.
    """
    clock = clock or SystemClock()
    counting = config.counting
    validate(config.weights, counting.horizons_seconds, counting.documents)
    tokenizer = load_tokenizer(config.tokenizer)
    validate(config.weights, counting.horizons_seconds, counting.documents, tokenizer.vocab_size)
    spec = counters_spec(config, tokenizer)
    metrics = Metrics(config.job, clock)
    metrics.watch_device_memory(lambda: device_memory_bytes(spec.device))
    health = Health(clock=clock)
    checkpoints = open_checkpoints(config.redis, config.job)
    dead_letters = open_dead_letters(config)
    committer = Committer(checkpoints, tokenizer, dead_letters, metrics, health, clock)
    assignment = Assignment(
        spec,
        checkpoints,
        lambda: start_at(config, clock.now_ms()),
        Told(committer.commit, committer.restored, metrics.gap, lambda: health.beat("poll")),
        clock,
    )
    snapshots = with_short_lease(config)
    publisher = Publisher(
        Recipe(config.job, tokenizer.name, tokenizer.fingerprint, config.weights),
        snapshots,
        checkpoints,
        open_snapshots(config.redis, snapshots, config.job),
        open_lease(config.redis, snapshots, config.job, worker_name()),
        clock,
    )
    tokenization = Tokenization(
        TextPipeline(config.value, config.text), tokenizer, config.value.on_bad
    )
    queue = WorkQueue(QUEUE_BYTES)
    counter = BatchCounter(tokenization, EventTimes(config.counting), clock, metrics, dead_letters)
    server = TelemetryServer(config.telemetry, metrics, lambda: health)

    def close() -> None:
        if dead_letters is not None:
            dead_letters.close()
        server.close()

    parts = Parts(
        source=source or open_source(config, clock),
        assignment=assignment,
        queue=queue,
        counting=CountingThreads(queue, counter, BATCH_BYTES, lambda loop: health.beat(loop)),
        committer=committer,
        publisher=publisher,
        metrics=metrics,
        health=health,
        clock=clock,
        on_closed=close,
    )
    return Daemon(parts, config.schedule)
