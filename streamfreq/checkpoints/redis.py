"""Checkpoints in Redis: one hash per partition, swapped by one script.

Keys, with each partition in its own cluster slot (topic percent-encoded where it is not plain):

    PREFIX:JOB:checkpoint:{TOPIC:PARTITION}   hash: version, token, next_offset, base, part:VERSION
    PREFIX:JOB:checkpoints                    set of TOPIC:PARTITION, so that nothing scans keys

The part of version `base` is a whole checkpoint, those of the versions behind it are changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

from streamfreq.checkpoints.base import conflict
from streamfreq.codec import (
    NO_REVISION,
    Checkpoint,
    CheckpointUpdate,
    Revision,
    decode_checkpoint,
    encode_update,
)
from streamfreq.errors import CheckpointRefused
from streamfreq.records import TopicPartition
from streamfreq.redis_client import Client, Script, call, run, server_name

# KEYS: checkpoint. ARGV: the token that must be there ('' for no checkpoint), version, token,
# next_offset, the part, 1 when it is whole. Returns {done, version, next_offset} of what was there
# before. The new part is the first write: a full server refuses it, and nothing has changed.
_SWAP = Script(
    """
    local stored = redis.call('HMGET', KEYS[1], 'version', 'token', 'next_offset', 'base')
    local version, offset = stored[1] or '0', stored[3] or '0'
    if stored[2] == ARGV[3] then
        return {1, version, offset}
    end
    if (stored[2] or '') ~= ARGV[1] or tonumber(offset) > tonumber(ARGV[4]) then
        return {0, version, offset}
    end
    redis.call('HSET', KEYS[1], 'part:' .. ARGV[2], ARGV[5], 'version', ARGV[2], 'token', ARGV[3],
               'next_offset', ARGV[4])
    if ARGV[6] == '1' then
        redis.call('HSET', KEYS[1], 'base', ARGV[2])
        for old = tonumber(stored[4] or '1'), tonumber(version) do
            redis.call('HDEL', KEYS[1], string.format('part:%d', old))
        end
    end
    return {1, version, offset}
    """
)

# KEYS: checkpoint. ARGV: version and token of what the caller has. Returns {version, token, part,
# ...}, read as one: no parts when the caller has all, those behind its version when it may have the
# others, else all.
_LOAD = Script(
    """
    local stored = redis.call('HMGET', KEYS[1], 'version', 'token', 'base')
    if not stored[1] then
        return false
    end
    local answer = {stored[1], stored[2]}
    if stored[2] == ARGV[2] then
        return answer
    end
    local first, known = tonumber(stored[3] or '1'), tonumber(ARGV[1])
    if known >= first and known < tonumber(stored[1]) then
        first = known + 1
    end
    for version = first, tonumber(stored[1]) do
        answer[#answer + 1] = redis.call('HGET', KEYS[1], string.format('part:%d', version)) or ''
    end
    return answer
    """
)


class RedisCheckpointStore:
    """A CheckpointStore on a server that speaks the Redis protocol; safe between threads."""

    def __init__(self, client: Client, prefix: str, job: str) -> None:
        self._client = client
        self._job = job
        self._root = f"{quote(prefix, safe='')}:{quote(job, safe='')}"
        self._index = f"{self._root}:checkpoints"
        self._listed: frozenset[TopicPartition] = frozenset()

    def load(self, partition: TopicPartition, known: Checkpoint | None = None) -> Checkpoint | None:
        """The partition's checkpoint; `known` itself when it is what is stored."""
        have = NO_REVISION if known is None else known.revision
        found = _LOAD(self._client, [self._key(partition)], [have.version, have.token])
        if found is None:
            return None
        stored = Revision(int(found[0]), found[1].decode())
        parts = found[2:]
        if known is not None and stored == have:
            return known
        what = f"checkpoint of {partition} of job {self._job} in {server_name(self._client)}"
        try:
            checkpoint = decode_checkpoint(parts, what, known)
        except CheckpointRefused:
            if known is None:
                raise
            # The store may have gone back and on again by another way since `known` was read.
            return self.load(partition)
        if (checkpoint.partition, checkpoint.revision) != (partition, stored):
            raise CheckpointRefused(
                f"{what}: holds version {checkpoint.version} of {checkpoint.partition} "
                f"in place of version {stored.version}"
            )
        return checkpoint

    def commit(self, update: CheckpointUpdate) -> None:
        """Store it if what is stored is what it follows, else raise CheckpointConflict.

        1. Add the partition to the index, unless it was in there when this store last looked: an
           index that was lost heals. An entry without a checkpoint means nothing.
        2. Swap revision, next offset and counters by one script, all or nothing.

        Safe to repeat when the answer was lost: the token tells that it was done.
        """
        part = encode_update(update)
        if update.partition not in self._listed:
            call(self._client, "SADD", self._index, _member(update.partition))  # 1
        done, version, next_offset = _SWAP(  # 2
            self._client,
            [self._key(update.partition)],
            [
                update.follows.token,
                *update.revision,
                update.next_offset,
                part,
                int(update.changes.whole),
            ],
        )
        if not done:
            raise conflict(update, Revision(int(version), ""), int(next_offset))

    def revisions(self) -> Mapping[TopicPartition, Revision]:
        """The revision of every partition that has a checkpoint, as of some moment each."""
        partitions = self._indexed()
        self._listed = frozenset(partitions)
        if not partitions:
            return {}

        def ask() -> list[list[bytes | None]]:
            pipeline = self._client.pipeline(transaction=False)
            for partition in partitions:
                pipeline.execute_command("HMGET", self._key(partition), "version", "token")
            answers: list[list[bytes | None]] = pipeline.execute()
            return answers

        return {
            partition: self._revision(partition, version, token or b"")
            for partition, (version, token) in zip(partitions, run(self._client, ask), strict=True)
            if version is not None
        }

    def _revision(self, partition: TopicPartition, version: bytes, token: bytes) -> Revision:
        if not version.isdigit():
            raise CheckpointRefused(
                f"key {self._key(partition)} in {server_name(self._client)}: {version[:20]!r} is "
                "no version, so somebody else wrote it; delete that key, and its partition is "
                "written again or counted anew"
            )
        return Revision(int(version), token.decode(errors="replace"))

    def delete(self, partition: TopicPartition) -> bool:
        """Forget the partition's checkpoint; whether there was one.

        1. Delete the checkpoint, then 2. its index entry, so that an end between the two leaves
        nothing that can't be found again.
        """
        deleted = bool(call(self._client, "DEL", self._key(partition)))  # 1
        call(self._client, "SREM", self._index, _member(partition))  # 2
        return deleted

    def _indexed(self) -> list[TopicPartition]:
        members = call(self._client, "SMEMBERS", self._index)
        # What has not this form is not ours.
        return sorted(_partition(member) for member in members if _MEMBER.fullmatch(member))

    def _key(self, partition: TopicPartition) -> str:
        return f"{self._root}:checkpoint:{{{_member(partition)}}}"


_MEMBER = re.compile(rb"[!-9;-~]+:[0-9]+")


def _member(partition: TopicPartition) -> str:
    return f"{quote(partition.topic, safe='')}:{partition.partition}"


def _partition(member: bytes) -> TopicPartition:
    topic, _, number = member.decode().rpartition(":")
    return TopicPartition(unquote(topic), int(number))
