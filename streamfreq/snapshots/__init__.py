"""Where snapshots are published for readers, and the lease that elects their publisher."""

from __future__ import annotations

import math

from streamfreq.config import RedisConfig, SnapshotsConfig
from streamfreq.errors import ConfigError
from streamfreq.snapshots.base import Hints, PublisherLease, SnapshotInfo, SnapshotStore
from streamfreq.snapshots.files import read_snapshot_file, write_snapshot_file
from streamfreq.snapshots.memory import MemoryPublisherLease, MemorySnapshots, MemorySnapshotStore
from streamfreq.snapshots.reader import SnapshotReader

__all__ = [
    "Hints",
    "MemoryPublisherLease",
    "MemorySnapshotStore",
    "MemorySnapshots",
    "PublisherLease",
    "SnapshotInfo",
    "SnapshotReader",
    "SnapshotStore",
    "open_lease",
    "open_snapshots",
    "read_snapshot_file",
    "write_snapshot_file",
]


def open_snapshots(redis: RedisConfig, snapshots: SnapshotsConfig, job: str) -> SnapshotStore:
    """The snapshots of `job` on the configured server.

    memory://NAME opens a store that this process shares under that name. Raises ConfigError for
    a URL that can't be right, ServiceUnavailable when a cluster can't be reached.
    """
    from streamfreq.redis_client import connect, is_memory

    if is_memory(redis):
        kept = MemorySnapshots.shared(redis.url, redis.prefix, job)
        return MemorySnapshotStore(job, snapshots.retain, kept)
    from streamfreq.snapshots.redis import RedisSnapshotStore

    return RedisSnapshotStore(connect(redis), redis.prefix, job, snapshots.retain)


def open_lease(
    redis: RedisConfig, snapshots: SnapshotsConfig, job: str, holder: str
) -> PublisherLease:
    """The lease to publish snapshots of `job`; `holder` must name this publisher and no other."""
    from streamfreq.redis_client import connect, is_memory

    if math.isinf(snapshots.lease_seconds):
        raise ConfigError(
            "snapshots.lease_seconds: inf is not allowed, a publisher that died would never be "
            "replaced; give a time like 15s"
        )
    if is_memory(redis):
        kept = MemorySnapshots.shared(redis.url, redis.prefix, job)
        return MemoryPublisherLease(kept, holder, snapshots.lease_seconds)
    from streamfreq.snapshots.redis import RedisPublisherLease

    return RedisPublisherLease(connect(redis), redis.prefix, job, holder, snapshots.lease_seconds)
