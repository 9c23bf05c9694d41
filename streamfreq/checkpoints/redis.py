"""Checkpoints in Redis: one hash per partition, swapped by one script.

Keys, with each partition in its own cluster slot (topic percent-encoded where it is not plain):

    PREFIX:JOB:checkpoint:{TOPIC:PARTITION}   hash: version, next_offset, token, body
    PREFIX:JOB:checkpoints                    set of TOPIC:PARTITION, so that nothing scans keys
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from urllib.parse import quote, unquote

from streamfreq.codec import Checkpoint, decode_checkpoint, encode_checkpoint
from streamfreq.errors import CheckpointConflict, CheckpointRefused
from streamfreq.records import TopicPartition
from streamfreq.redis_client import Client, Script, call, run, server_name

# KEYS: checkpoint. ARGV: version, next_offset, token, body. Returns the stored version before the
# swap; -1: this very checkpoint is stored already (the answer to the first try was lost).
_SWAP = Script(
    """
    local stored = redis.call('HMGET', KEYS[1], 'version', 'token')
    local version = tonumber(stored[1] or '0')
    local new = tonumber(ARGV[1])
    if version == new and stored[2] == ARGV[3] then
        return -1
    end
    if version == new - 1 then
        redis.call('HSET', KEYS[1], 'version', ARGV[1], 'next_offset', ARGV[2],
                   'token', ARGV[3], 'body', ARGV[4])
    end
    return version
    """
)

# KEYS: checkpoint. ARGV: newer_than. Returns {version, body} when newer: read as one, and the body
# is not sent for nothing.
_LOAD = Script(
    """
    local version = redis.call('HGET', KEYS[1], 'version')
    if not version or tonumber(version) <= tonumber(ARGV[1]) then
        return false
    end
    return {version, redis.call('HGET', KEYS[1], 'body')}
    """
)


class RedisCheckpointStore:
    """A CheckpointStore on a server that speaks the Redis protocol; safe between threads."""

    def __init__(self, client: Client, prefix: str, job: str) -> None:
        self._client = client
        self._job = job
        self._root = f"{quote(prefix, safe='')}:{quote(job, safe='')}"
        self._index = f"{self._root}:checkpoints"
        # Tells our own write from an equal one of another worker.
        self._writer = uuid.uuid4().bytes

    def load(self, partition: TopicPartition, newer_than: int = 0) -> Checkpoint | None:
        """The partition's checkpoint; None when there is none with a version above `newer_than`."""
        found = _LOAD(self._client, [self._key(partition)], [newer_than])
        if found is None:
            return None
        version, body = int(found[0]), found[1] or b""
        what = f"checkpoint of {partition} of job {self._job} in {server_name(self._client)}"
        checkpoint = decode_checkpoint(body, what)
        if (checkpoint.partition, checkpoint.version) != (partition, version):
            raise CheckpointRefused(
                f"{what}: holds version {checkpoint.version} of {checkpoint.partition} "
                f"in place of version {version}"
            )
        return checkpoint

    def commit(self, checkpoint: Checkpoint) -> None:
        """Write it if the stored version is one less, else raise CheckpointConflict.

        1. Add the partition to the index. Done each time, so that an index that was lost heals;
           an entry without a checkpoint means nothing.
        2. Swap version, next offset and counters by one script, all or nothing.

        Safe to repeat when the answer was lost: a swap that was done by this store with these
        bytes is no conflict.
        """
        body = encode_checkpoint(checkpoint)
        token = hashlib.sha256(self._writer + body).hexdigest()
        call(self._client, "SADD", self._index, _member(checkpoint.partition))  # 1
        stored = _SWAP(  # 2
            self._client,
            [self._key(checkpoint.partition)],
            [checkpoint.version, checkpoint.next_offset, token, body],
        )
        if stored not in (-1, checkpoint.version - 1):
            raise CheckpointConflict(
                f"{checkpoint.partition}: version {stored} is stored, so version "
                f"{checkpoint.version} can't follow; another worker owns the partition now, "
                "or the store has lost writes"
            )

    def versions(self) -> Mapping[TopicPartition, int]:
        """The version of every partition that has a checkpoint, as of some moment each."""
        return {partition: int(version) for partition, (version, _) in self._heads().items()}

    def revisions(self) -> Mapping[TopicPartition, str]:
        """What tells each stored checkpoint from every other one of its partition."""
        return {
            partition: f"{version.decode()}:{(token or b'').decode()}"
            for partition, (version, token) in self._heads().items()
        }

    def delete_all(self) -> int:
        """Forget every checkpoint of the job; returns how many there were.

        1. Delete the checkpoints, then 2. their index entries, so that an end between the two
        leaves nothing that can't be found again.
        """
        partitions = self._indexed()
        deleted = sum(int(call(self._client, "DEL", self._key(one))) for one in partitions)  # 1
        if partitions:
            call(self._client, "SREM", self._index, *map(_member, partitions))  # 2
        return deleted

    def _heads(self) -> dict[TopicPartition, tuple[bytes, bytes | None]]:
        """Version and token of every partition that has a checkpoint; no bodies."""
        partitions = self._indexed()
        if not partitions:
            return {}

        def ask() -> list[list[bytes | None]]:
            pipeline = self._client.pipeline(transaction=False)
            for partition in partitions:
                pipeline.execute_command("HMGET", self._key(partition), "version", "token")
            answers: list[list[bytes | None]] = pipeline.execute()
            return answers

        return {
            partition: (version, token)
            for partition, (version, token) in zip(partitions, run(self._client, ask), strict=True)
            if version is not None
        }

    def _indexed(self) -> list[TopicPartition]:
        members = call(self._client, "SMEMBERS", self._index)
        return sorted(_partition(member.decode()) for member in members)

    def _key(self, partition: TopicPartition) -> str:
        return f"{self._root}:checkpoint:{{{_member(partition)}}}"


def _member(partition: TopicPartition) -> str:
    return f"{quote(partition.topic, safe='')}:{partition.partition}"


def _partition(member: str) -> TopicPartition:
    topic, _, number = member.rpartition(":")
    return TopicPartition(unquote(topic), int(number))
