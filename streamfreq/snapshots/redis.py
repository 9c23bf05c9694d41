"""Snapshots and the publisher's lease in Redis; each change is one script.

Keys of a job, all in one cluster slot:

    PREFIX:{JOB}:snapshot:VERSION   the bytes of one snapshot; never change
    PREFIX:{JOB}:latest             its version; only grows
    PREFIX:{JOB}:floor              hash: version, epoch, json of what readers have got
    PREFIX:{JOB}:index              hash: version -> token, created_at_ms, as_of_ms, size
    PREFIX:{JOB}:pinned             set of versions that are never trimmed
    PREFIX:{JOB}:stale              since when (ms) the latest has had no live stream behind it
    PREFIX:{JOB}:fence              highest fencing token given out or seen
    PREFIX:{JOB}:lease              "token holder", expires by itself
    PREFIX:{JOB}:published          channel: a version, as a hint
"""

from __future__ import annotations

import hashlib
import uuid
from urllib.parse import quote

from streamfreq.codec import (
    Floor,
    Snapshot,
    decode_floor,
    decode_snapshot,
    encode_floor,
    encode_snapshot,
)
from streamfreq.errors import FencedOut, SnapshotRefused
from streamfreq.redis_client import Client, Script, call, server_name
from streamfreq.snapshots.base import Hints, SnapshotInfo
from streamfreq.snapshots.redis_hints import RedisHints

# KEYS: latest, index, pinned, stale, fence, floor, body, then the bodies to trim.
# ARGV: version, fence, token, info, channel, epoch, body, floor, then the versions to trim.
# Returns {what, value}: 1 published, 2 published before by this very call, -1 a higher fence was
# seen (value), -2 a version at or above it is the latest (value). The checks come before any write,
# and the first write is one that a full server refuses: so it is all or nothing.
_PUBLISH = Script(
    """
    local known = redis.call('HGET', KEYS[2], ARGV[1])
    if known and string.sub(known, 1, #ARGV[3]) == ARGV[3] then
        return {2, ARGV[1]}
    end
    local fence = redis.call('GET', KEYS[5]) or '0'
    if tonumber(ARGV[2]) < tonumber(fence) then
        return {-1, fence}
    end
    local latest = redis.call('GET', KEYS[1]) or '0'
    if tonumber(ARGV[1]) <= tonumber(latest) then
        return {-2, latest}
    end
    local floor = redis.call('HMGET', KEYS[6], 'epoch', 'version')
    if floor[1] then
        local ahead = tonumber(ARGV[6]) - tonumber(floor[1])
        if ahead < 0 or (ahead == 0 and tonumber(ARGV[1]) <= tonumber(floor[2])) then
            return {-2, floor[2]}
        end
    end
    redis.call('SET', KEYS[7], ARGV[7])
    redis.call('HSET', KEYS[2], ARGV[1], ARGV[4])
    redis.call('SET', KEYS[1], ARGV[1])
    redis.call('SET', KEYS[5], ARGV[2])
    redis.call('HSET', KEYS[6], 'epoch', ARGV[6], 'version', ARGV[1], 'json', ARGV[8])
    redis.call('DEL', KEYS[4])
    for i = 8, #KEYS do
        if redis.call('SISMEMBER', KEYS[3], ARGV[i + 1]) == 0 then
            redis.call('DEL', KEYS[i])
            redis.call('HDEL', KEYS[2], ARGV[i + 1])
        end
    end
    redis.pcall('PUBLISH', ARGV[5], ARGV[1])
    return {1, ARGV[1]}
    """
)

# KEYS: floor. ARGV: epoch, version, json.
_RAISE = Script(
    """
    local floor = redis.call('HMGET', KEYS[1], 'epoch', 'version')
    if floor[1] then
        local ahead = tonumber(ARGV[1]) - tonumber(floor[1])
        if ahead > 0 or (ahead == 0 and tonumber(ARGV[2]) > tonumber(floor[2])) then
            redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'version', ARGV[2], 'json', ARGV[3])
        end
    end
    return 1
    """
)

# KEYS: latest, index, pinned. Returns {latest, index as field, value, ..., pinned versions}.
_LIST = Script(
    """
    return {redis.call('GET', KEYS[1]) or '0', redis.call('HGETALL', KEYS[2]),
            redis.call('SMEMBERS', KEYS[3])}
    """
)

# KEYS: index, pinned. ARGV: version, SADD or SREM. Returns whether the version is kept.
_PIN = Script(
    """
    if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
        return 0
    end
    redis.call(ARGV[2], KEYS[2], ARGV[1])
    return 1
    """
)

# KEYS: lease, fence. ARGV: holder, milliseconds. Returns the token, or nil. A holder whose token is
# below the fence (the server lost its last writes) gets a new one, else it could never publish.
_ACQUIRE = Script(
    """
    local lease = redis.call('GET', KEYS[1])
    if lease then
        local token, holder = string.match(lease, '^(%d+) (.*)$')
        if holder ~= ARGV[1] then
            return false
        end
        if tonumber(token) >= tonumber(redis.call('GET', KEYS[2]) or '0') then
            redis.call('PEXPIRE', KEYS[1], ARGV[2])
            return tonumber(token)
        end
    end
    local new = redis.call('INCR', KEYS[2])
    redis.call('SET', KEYS[1], string.format('%d %s', new, ARGV[1]), 'PX', ARGV[2])
    return new
    """
)

# KEYS: lease. ARGV: holder.
_RELEASE = Script(
    """
    local lease = redis.call('GET', KEYS[1])
    if lease and string.match(lease, '^%d+ (.*)$') == ARGV[1] then
        redis.call('DEL', KEYS[1])
    end
    return 1
    """
)


class _Keys:
    def __init__(self, prefix: str, job: str) -> None:
        self._root = f"{quote(prefix, safe='')}:{{{quote(job, safe='')}}}"
        self.latest = f"{self._root}:latest"
        self.floor = f"{self._root}:floor"
        self.index = f"{self._root}:index"
        self.pinned = f"{self._root}:pinned"
        self.stale = f"{self._root}:stale"
        self.fence = f"{self._root}:fence"
        self.lease = f"{self._root}:lease"
        self.published = f"{self._root}:published"

    def body(self, version: int) -> str:
        return f"{self._root}:snapshot:{version}"


class RedisSnapshotStore:
    """A SnapshotStore on a server that speaks the Redis protocol; safe between threads."""

    def __init__(self, client: Client, prefix: str, job: str, retain: int = 10) -> None:
        self._client = client
        self._job = job
        self._retain = retain
        self._keys = _Keys(prefix, job)
        # Tells our own write from an equal one of another publisher.
        self._writer = uuid.uuid4().bytes

    def publish(self, snapshot: Snapshot, fence: int) -> None:
        """Keep `snapshot`, make it the latest, trim.

        1. See which versions the new one pushes out. Versions only grow, so what is due now is
           still due in step 2, unless somebody pins it.
        2. One script: refuse an older fencing token or a version that is not above the latest;
           else write the body, flip `latest`, trim what is due and not pinned, clear the stale
           mark, and send the hint.

        Safe to repeat when the answer was lost: what this store published already with these
        bytes is not refused. Raises FencedOut when refused; nothing has changed then.
        """
        keys, version, body = self._keys, snapshot.version, encode_snapshot(snapshot)
        due = self._due(version)  # 1
        token = hashlib.sha256(self._writer + body).hexdigest()
        info = f"{token} {snapshot.created_at_ms} {snapshot.as_of_ms} {len(body)}"
        outcome, value = _PUBLISH(  # 2
            self._client,
            [
                *(keys.latest, keys.index, keys.pinned, keys.stale, keys.fence, keys.floor),
                keys.body(version),
                *map(keys.body, due),
            ],
            [
                *[str(item) for item in (version, fence, token, info, keys.published)],
                *(snapshot.epoch, body, encode_floor(Floor.of(snapshot))),
                *due,
            ],
        )
        if outcome == -1:
            raise FencedOut(
                f"snapshot {version} of job {self._job}: fencing token {fence} is older than "
                f"{int(value)}; another publisher has taken over, "
                "or our own lease ran out meanwhile"
            )
        if outcome == -2:
            raise FencedOut(
                f"snapshot {version} of job {self._job}: version {int(value)} is published "
                "already; another publisher is at work"
            )

    def latest_version(self) -> int:
        """The version of the latest snapshot; 0 when none was ever published."""
        return int(call(self._client, "GET", self._keys.latest) or 0)

    def epoch(self) -> int:
        """The floor's epoch; 0: there is none, the next snapshot begins a new epoch."""
        return int(call(self._client, "HGET", self._keys.floor, "epoch") or 0)

    def floor(self) -> Floor:
        """What readers have got, as far as is known here."""
        found = call(self._client, "HGET", self._keys.floor, "json")
        return Floor() if found is None else decode_floor(found)

    def raise_floor(self, floor: Floor) -> None:
        """Keep this floor, if there is one and this is a later one."""
        _RAISE(self._client, [self._keys.floor], [floor.epoch, floor.version, encode_floor(floor)])

    def end_epoch(self) -> None:
        """Let the next snapshot begin a new epoch: it may count less than the last one."""
        call(self._client, "DEL", self._keys.floor)

    def load(self, version: int | None = None) -> Snapshot | None:
        """A kept snapshot (default: the latest); None when it is not kept."""
        if version is not None:
            return self._load(version)
        latest = self.latest_version()
        while True:
            snapshot = self._load(latest)
            if snapshot is not None:
                return snapshot
            # With few retained versions it may have been trimmed between the two reads.
            seen, latest = latest, self.latest_version()
            if latest == seen:
                return None

    def infos(self) -> list[SnapshotInfo]:
        """Every kept snapshot, oldest first."""
        latest, index, pinned = self._list()
        found = []
        for version, info in sorted(index.items()):
            created_at_ms, as_of_ms, size = map(int, info.split()[1:])
            found.append(
                SnapshotInfo(
                    version=version,
                    created_at_ms=created_at_ms,
                    as_of_ms=as_of_ms,
                    size_bytes=size,
                    pinned=version in pinned,
                    latest=version == latest,
                )
            )
        return found

    def set_pinned(self, version: int, pinned: bool) -> bool:
        """Pin (never trimmed) or unpin a version; False when it is not kept."""
        keys = [self._keys.index, self._keys.pinned]
        return bool(_PIN(self._client, keys, [version, "SADD" if pinned else "SREM"]))

    def mark_stale(self, since_ms: int | None) -> None:
        """Say since when the latest snapshot has had no live stream behind it; None: it has."""
        if since_ms is None:
            call(self._client, "DEL", self._keys.stale)
        else:
            call(self._client, "SET", self._keys.stale, since_ms)

    def stale_since_ms(self) -> int | None:
        """The mark that `mark_stale` left."""
        since = call(self._client, "GET", self._keys.stale)
        return None if since is None else int(since)

    def hints(self) -> Hints:
        """Listen for publications from now on."""
        return RedisHints(self._client, self._keys.published)

    def _load(self, version: int) -> Snapshot | None:
        body = call(self._client, "GET", self._keys.body(version))
        if body is None:
            return None
        what = f"snapshot {version} of job {self._job} in {server_name(self._client)}"
        snapshot = decode_snapshot(body, what)
        if snapshot.version != version:
            raise SnapshotRefused(f"{what}: holds version {snapshot.version}")
        return snapshot

    def _due(self, version: int) -> list[int]:
        _, index, pinned = self._list()
        older = sorted(kept for kept in index if kept != version)
        beyond = older[: max(0, len(older) - (self._retain - 1))]
        return [kept for kept in beyond if kept not in pinned]

    def _list(self) -> tuple[int, dict[int, bytes], set[int]]:
        keys = self._keys
        latest, fields, pinned = _LIST(self._client, [keys.latest, keys.index, keys.pinned], [])
        index = dict(zip(map(int, fields[::2]), fields[1::2], strict=True))
        return int(latest), index, set(map(int, pinned))


class RedisPublisherLease:
    """A PublisherLease in Redis; safe to repeat, since the present holder only renews.

    The server's own clock ends it, so the clocks of the daemons do not matter. Should the server's
    clock jump and end it early, the fencing token keeps the old holder from publishing.
    """

    def __init__(
        self, client: Client, prefix: str, job: str, holder: str, lease_seconds: float
    ) -> None:
        self._client = client
        self._keys = _Keys(prefix, job)
        self._holder = holder
        self._lease_ms = max(1, round(lease_seconds * 1000))

    def acquire(self) -> int | None:
        """Take or renew the lease; the fencing token, or None while somebody else holds it."""
        keys = [self._keys.lease, self._keys.fence]
        token = _ACQUIRE(self._client, keys, [self._holder, self._lease_ms])
        return None if token is None else int(token)

    def release(self) -> None:
        """Give the lease back, if it is ours."""
        _RELEASE(self._client, [self._keys.lease], [self._holder])
