"""Every number that the daemon shows to Prometheus, on a registry of its own.

Counters end in _total, sizes are bytes, times are seconds. Ages are computed when scraped, so
they grow even while nothing happens. A partition's lag disappears when the partition leaves.
All methods may be called from any thread.
"""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.exposition import choose_encoder

from streamfreq import __version__
from streamfreq.clock import Clock, SystemClock
from streamfreq.records import TopicPartition

_STORE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ENCODE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """What the daemon has done and where it stands; methods are events and states of its words.

    >>> metrics = Metrics(job="news")
    >>> metrics.batch_counted("titles", records=2, tokens=31, bytes=140)
    >>> metrics.value("streamfreq_tokens_total", topic="titles")
    31.0
    """

    def __init__(self, job: str, clock: Clock | None = None) -> None:
        self._clock = clock if clock is not None else SystemClock()
        self.registry = CollectorRegistry()
        Info("streamfreq", "What runs here.", registry=self.registry).info(
            {"streamfreq_job": job, "version": __version__}
        )
        ProcessCollector(registry=self.registry)
        self._make_counters()
        self._make_gauges()
        self._make_histograms()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"streamfreq_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"streamfreq_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"streamfreq_{name}", text, buckets=buckets, registry=self.registry)

    def _make_counters(self) -> None:
        self._records = self._counter("records", "Records counted.", "topic")
        self._tokens = self._counter("tokens", "Tokens counted.", "topic")
        self._bytes = self._counter("bytes", "Bytes of the records counted.", "topic")
        self._bad = self._counter("bad_records", "Records that were not as they should be.", "kind")
        self._event_times = self._counter(
            "event_times", "Timestamps that were mended or judged, by what was the matter.", "kind"
        )
        self._late = self._counter("late_records", "Records behind max_lateness.")
        self._commits = self._counter("commits", "Commits that succeeded.")
        self._conflicts = self._counter("commit_conflicts", "Commits that lost to another worker.")
        self._lost = self._counter(
            "checkpoint_losses", "Checkpoints that the store had lost, written again from memory."
        )
        self._gaps = self._counter(
            "gap_records", "Offsets that the broker no longer had, never to be counted.", "topic"
        )
        self._publishes = self._counter("publishes", "Snapshots published by this daemon.")
        self._publish_failures = self._counter("publish_failures", "Snapshots that failed.")
        self._service_failures = self._counter(
            "service_failures", "Times that a service could not be reached.", "service"
        )

    def _make_gauges(self) -> None:
        self._lag = self._gauge("lag_records", "Records not yet read.", "topic", "partition")
        self._partitions = self._gauge("partitions_assigned", "Partitions that are ours.")
        self._ready = self._gauge("ready", "1 while /readyz says yes.")
        self._watermark = self._gauge(
            "watermark_timestamp_seconds", "Latest event time counted, since the epoch."
        )
        self._watermark.set(math.nan)
        self._version = self._gauge("snapshot_version", "Version of the latest snapshot seen.")
        self._created = self._gauge(
            "snapshot_created_timestamp_seconds", "When the latest snapshot seen was made."
        )
        self._as_of = self._gauge(
            "snapshot_as_of_timestamp_seconds", "Event time that its counts are decayed to."
        )
        self._held = self._gauge(
            "publish_held", "1 while publishing waits for checkpoints that the store had lost."
        )
        self._created_at_ms: int | None = None
        for gauge in (self._created, self._as_of):
            gauge.set(math.nan)
        self._gauge(
            "snapshot_age_seconds", "Age of the latest snapshot seen; NaN before the first."
        ).set_function(self._snapshot_age_seconds)
        self._gauge("memory_bytes", "Resident memory of the process.").set_function(
            resident_memory_bytes
        )

    def _make_histograms(self) -> None:
        self._commit_seconds = self._histogram(
            "commit_duration_seconds", "One commit.", _STORE_SECONDS
        )
        self._publish_seconds = self._histogram(
            "publish_duration_seconds", "Merge, weigh and publish one snapshot.", _STORE_SECONDS
        )
        self._encode_seconds = self._histogram(
            "encode_duration_seconds", "Clean and tokenize one round of batches.", _ENCODE_SECONDS
        )

    # Counting

    def batch_counted(self, topic: str, *, records: int, tokens: int, bytes: int) -> None:
        """A batch of `topic` went into the counters."""
        self._records.labels(topic).inc(records)
        self._tokens.labels(topic).inc(tokens)
        self._bytes.labels(topic).inc(bytes)

    def bad(self, kind: str, count: int = 1) -> None:
        """`count` records were bad in the way `kind`."""
        self._bad.labels(kind).inc(count)

    def event_times(self, tallies: Mapping[str, int]) -> None:
        """Timestamps by what was the matter with them; the kind "late" is counted as late too."""
        for kind, count in tallies.items():
            self._event_times.labels(kind).inc(count)
        self._late.inc(tallies.get("late", 0))

    @contextmanager
    def encode_timer(self) -> Iterator[None]:
        """Times the cleaning and tokenizing of one round of batches."""
        with _timed(self._encode_seconds):
            yield

    def watermark(self, ms: int) -> None:
        """The latest event time counted, in ms since the epoch."""
        self._watermark.set(ms / 1000)

    # Partitions

    def set_lag(self, partition: TopicPartition, lag: int) -> None:
        """So many records of `partition` are not read yet."""
        self._lag.labels(partition.topic, str(partition.partition)).set(lag)

    def drop_partition(self, partition: TopicPartition) -> None:
        """The partition is no longer ours: its lag is not ours to tell."""
        with suppress(KeyError):
            self._lag.remove(partition.topic, str(partition.partition))

    def set_partitions(self, count: int) -> None:
        """How many partitions are ours."""
        self._partitions.set(count)

    # Committing and publishing

    @contextmanager
    def commit_timer(self) -> Iterator[None]:
        """Times one commit and counts it; when it raises, neither."""
        with _timed(self._commit_seconds):
            yield
        self._commits.inc()

    def conflict(self) -> None:
        """A commit lost: another worker owns the partition."""
        self._conflicts.inc()

    def published(self, version: int, created_at_ms: int, as_of_ms: int, seconds: float) -> None:
        """This daemon published a snapshot; it took `seconds`."""
        self._publishes.inc()
        self._publish_seconds.observe(seconds)
        self.snapshot_seen(version, created_at_ms, as_of_ms)

    def snapshot_seen(self, version: int, created_at_ms: int, as_of_ms: int) -> None:
        """The latest snapshot of the job, whoever published it."""
        self._version.set(version)
        self._created.set(created_at_ms / 1000)
        self._as_of.set(as_of_ms / 1000)
        self._created_at_ms = created_at_ms

    def checkpoint_lost(self) -> None:
        """The store had lost a checkpoint that is in memory."""
        self._lost.inc()

    def gap(self, partition: TopicPartition, offsets: int) -> None:
        """So many offsets of a partition are gone before they were counted."""
        self._gaps.labels(partition.topic).inc(offsets)

    def publish_held(self, held: bool) -> None:
        """Whether publishing waits, so as not to take back what readers have got."""
        self._held.set(1 if held else 0)

    def publish_failed(self) -> None:
        """A snapshot could not be published."""
        self._publish_failures.inc()

    # The process

    def service_failed(self, service: str) -> None:
        """A service ("source", "store") could not be reached."""
        self._service_failures.labels(service).inc()

    def set_ready(self, ready: bool) -> None:
        """What /readyz says."""
        self._ready.set(1 if ready else 0)

    def watch_device_memory(self, read_bytes: Callable[[], float]) -> None:
        """Ask `read_bytes` for the memory in use on the device at every scrape. Call it once."""
        self._gauge("device_memory_bytes", "Memory in use on the counting device.").set_function(
            read_bytes
        )

    # Reading

    def value(self, name: str, **labels: str) -> float:
        """The sample of that full name and labels now; NaN when there is none."""
        value = self.registry.get_sample_value(name, labels)
        return math.nan if value is None else value

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics in the text format that an Accept header asks for, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def _snapshot_age_seconds(self) -> float:
        if self._created_at_ms is None:
            return math.nan
        return (self._clock.now_ms() - self._created_at_ms) / 1000


@contextmanager
def _timed(histogram: Histogram) -> Iterator[None]:
    """Observe the seconds that the block takes, unless it raises."""
    begin = time.perf_counter()
    yield
    histogram.observe(time.perf_counter() - begin)


def resident_memory_bytes() -> int:
    """Resident memory of this process; where /proc does not tell, its peak."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
