"""Where a partition's counters and next offset are kept as one value, swapped by version."""

from __future__ import annotations

from streamfreq.checkpoints.base import CheckpointStore
from streamfreq.checkpoints.memory import MemoryCheckpointStore
from streamfreq.config import RedisConfig

__all__ = ["CheckpointStore", "MemoryCheckpointStore", "open_checkpoints"]


def open_checkpoints(redis: RedisConfig, job: str) -> CheckpointStore:
    """The checkpoints of `job` on the configured server.

    memory://NAME opens a store that this process shares under that name. Raises ConfigError for
    a URL that can't be right, ServiceUnavailable when a cluster can't be reached.
    """
    from streamfreq.redis_client import connect, is_memory

    if is_memory(redis):
        return MemoryCheckpointStore.shared(redis.url, redis.prefix, job)
    from streamfreq.checkpoints.redis import RedisCheckpointStore

    return RedisCheckpointStore(connect(redis), redis.prefix, job)
