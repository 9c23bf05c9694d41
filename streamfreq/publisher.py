"""Merges the committed checkpoints of all partitions into the next snapshot, and publishes it.

Only what is committed is read, so that no reader ever sees what a crash can take back.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from streamfreq import __version__, faults
from streamfreq.checkpoints.base import CheckpointStore
from streamfreq.clock import Clock
from streamfreq.codec import Checkpoint, Floor, Revision, Snapshot
from streamfreq.config import SnapshotsConfig, WeightsConfig
from streamfreq.counting import DecayedCounts, decay_to, merge
from streamfreq.errors import CheckpointRefused
from streamfreq.records import TopicPartition
from streamfreq.snapshots.base import PublisherLease, SnapshotInfo, SnapshotStore
from streamfreq.weighting import WeightInputs, weigh

log = logging.getLogger("streamfreq.publisher")

LONGEST_TURN_SECONDS = 1.0
"""So often at least a daemon looks at what is published, to know it when the store loses it."""
LOSS_PATIENCE_SECONDS = 20.0
"""So long a new epoch waits at most for the workers to write again what the store has lost."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What goes into every snapshot of a job beside the counts."""

    job: str
    tokenizer_name: str
    tokenizer_fingerprint: str
    weights: Mapping[str, WeightsConfig]


class Publisher:
    """Publishes snapshots of one job while this process holds the lease.

    Every daemon of the job has one; the lease decides which of them works.
    """

    def __init__(
        self,
        recipe: Recipe,
        config: SnapshotsConfig,
        checkpoints: CheckpointStore,
        snapshots: SnapshotStore,
        lease: PublisherLease,
        clock: Clock,
    ) -> None:
        self._recipe = recipe
        self._config = config
        self._checkpoints = checkpoints
        self._snapshots = snapshots
        self._lease = lease
        self._clock = clock
        self._read: dict[TopicPartition, Checkpoint] = {}
        self._published: dict[TopicPartition, Revision] = {}
        self._published_version = 0
        self._term: int | None = None
        self._listens_until = 0.0
        self._told_lost = (0, 0)
        self._lost_since: float | None = None
        self._last = Floor()
        self._stale = False
        self._held = ""

    @property
    def lease_seconds(self) -> float:
        """After so long without renewal another publisher takes over."""
        return self._config.lease_seconds

    @property
    def turn_seconds(self) -> float:
        """How often `keep_lease` has to be called."""
        return min(self._config.lease_seconds / 3, LONGEST_TURN_SECONDS)

    def keep_lease(self) -> bool:
        """Take or renew the lease; whether we may publish.

        Also for a daemon that does not publish: it remembers what readers have got, and tells a
        store that has lost it. Who is new to the lease gives the others two turns for that.
        """
        self._remember()
        return self._acquire() is not None

    def _acquire(self) -> int | None:
        """Our fencing token once we may publish with it."""
        fence = self._lease.acquire()
        if fence is None:
            self._term = None
            return None
        now = self._clock.monotonic()
        if fence != self._term:
            # The next token after ours means that nobody was in between: the lease only ran out.
            renewed = self._term is not None and fence == self._term + 1
            self._term, self._stale = fence, False
            if not renewed:
                listens = 2 * self.turn_seconds if self._snapshots.latest_version() else 0.0
                self._listens_until = now + listens
        return fence if now >= self._listens_until else None

    def _remember(self) -> None:
        stored = self._snapshots.floor()
        if not stored.epoch:
            return
        last, self._last = self._last, self._later(stored)
        if stored.order < last.order:
            self._snapshots.raise_floor(last)

    def _later(self, stored: Floor) -> Floor:
        """The store's floor or the one remembered, whichever came later.

        Versions grow over epochs too, as far as anybody remembers them.
        """
        last = self._last
        if stored.order <= last.order:
            return last
        return replace(stored, version=max(stored.version, last.version))

    def latest_info(self) -> SnapshotInfo | None:
        """The latest snapshot of the job, whoever published it."""
        return next((info for info in self._snapshots.infos() if info.latest), None)

    def counts_of_others(self, ours: Collection[TopicPartition]) -> bool:
        """Whether the last snapshot had partitions that are not among these."""
        return not self._published.keys() <= set(ours)

    @property
    def held(self) -> str:
        """Why publishing waits for the checkpoints, in one line; "" when it does not."""
        return self._held

    def publish(self) -> Snapshot | None:
        """Publish the next snapshot; None when it is not our turn or there is nothing new.

        1. Take or renew the lease; its fencing token goes with the snapshot.
        2. Read what is new in the checkpoints.
        3. See what readers have got already: the next snapshot must not take it back.
        4. Merge them and decay them to one time. Nothing left above the floor: the last snapshot
           stays and is marked stale.
        5. Weigh.
        6. Publish under the next version; the store refuses an older fencing token.

        Raises FencedOut when another publisher took over between 1 and 6, CheckpointRefused when
        a checkpoint was written with another tokenizer, ServiceUnavailable when the store is away.
        """
        faults.reach("publish.1")
        fence = self._acquire()  # 1
        if fence is None:
            self._held = ""
            if self._term is None:
                self._read.clear()  # the memory of a publisher is needed by one daemon only
            return None
        faults.reach("publish.2")
        self._refresh()  # 2
        faults.reach("publish.3")
        floor, latest = self._floor()  # 3
        revisions = {partition: item.revision for partition, item in self._read.items()}
        by_clock = self._config.as_of == "clock"
        unchanged = revisions == self._published and latest == self._published_version
        if self._would_take_back(floor) or not revisions or (unchanged and not by_clock):
            return None
        faults.reach("publish.4")
        state = merge([item.state for item in self._read.values()])  # 4
        as_of_ms = max(state.watermark_ms, floor.as_of_ms)
        if by_clock:
            as_of_ms = max(as_of_ms, self._clock.now_ms())
        counts = decay_to(state, as_of_ms)
        if not (counts.tokens_H > self._config.min_mass).any():
            self._mark_stale(counted=state.watermark_ms >= 0)
            return None
        faults.reach("publish.5")
        snapshot = self._build(floor, counts, as_of_ms)  # 5
        faults.reach("publish.6")
        self._snapshots.publish(snapshot, fence)  # 6
        faults.reach("publish.7")
        self._published, self._published_version = revisions, snapshot.version
        self._last = Floor.of(snapshot)
        self._stale = False
        return snapshot

    def release(self) -> None:
        """Give the lease back so that another daemon publishes without waiting for it to expire."""
        self._lease.release()

    def _floor(self) -> tuple[Floor, int]:
        """What readers have got, and the store's latest version, which may be lower.

        Without an epoch the store holds no snapshot of the job, or none that binds: a new epoch
        begins, in which counts may be lower than those of the one before.
        """
        latest, stored, last = self._snapshots.latest_version(), self._snapshots.floor(), self._last
        if not stored.epoch:
            version = max(latest, last.version)
            if last.version and not latest and self._is_news(last):
                log.error(
                    "the store lost all snapshots, the last was version %d: a new epoch begins, "
                    "which the next snapshot tells its readers",
                    version,
                )
            epoch = max(self._clock.now_ms(), last.epoch + 1)
            awaited = {} if latest else self._awaited(last)
            return Floor(version, epoch, offsets=awaited), latest
        self._lost_since = None
        floor = self._later(stored)
        if latest < floor.version and self._is_news(floor):
            log.error(
                "the store lost snapshots: version %d was published, now %s is the latest; "
                "publishing goes on at version %d",
                floor.version,
                latest or "none",
                floor.version + 1,
            )
        return replace(floor, version=max(latest, floor.version)), latest

    def _awaited(self, last: Floor) -> Mapping[TopicPartition, int]:
        """What to wait for after the loss of everything: workers that live write theirs again."""
        now = self._clock.monotonic()
        if self._lost_since is None:
            self._lost_since = now
        return last.offsets if now - self._lost_since < LOSS_PATIENCE_SECONDS else {}

    def _is_news(self, lost: Floor) -> bool:
        """Whether the loss of this has not been said yet."""
        told, self._told_lost = self._told_lost, (lost.epoch, lost.version)
        return told != self._told_lost

    def _would_take_back(self, floor: Floor) -> bool:
        """Whether some partition has fewer records committed than readers have seen counted."""
        behind = [
            partition
            for partition, offset in floor.offsets.items()
            if partition not in self._read or self._read[partition].next_offset < offset
        ]
        held = ""
        if behind:
            held = (
                f"not published: the checkpoints of {len(behind)} partitions ({behind[0]} ...) "
                f"have fewer records than snapshot {floor.version}, as the store lost writes; "
                "publishing goes on once they are counted again"
            )
        if held and not self._held:
            log.warning("%s", held)
        self._held = held
        return bool(behind)

    def _mark_stale(self, *, counted: bool) -> None:
        if counted and not self._stale:
            log.warning("every count has decayed: the last snapshot stays and is marked stale")
            self._snapshots.mark_stale(self._clock.now_ms())
            self._stale = True

    def _refresh(self) -> None:
        stored = self._checkpoints.revisions()
        for partition in self._read.keys() - stored.keys():
            del self._read[partition]
        for partition, revision in stored.items():
            known = self._read.get(partition)
            if known is not None and known.revision == revision:
                continue
            checkpoint = self._checkpoints.load(partition, known)
            if checkpoint is None:
                continue
            if checkpoint.tokenizer_fingerprint != self._recipe.tokenizer_fingerprint:
                raise CheckpointRefused(
                    f"checkpoint of {partition} was counted with tokenizer "
                    f"{checkpoint.tokenizer_fingerprint[:12]}, this daemon has "
                    f"{self._recipe.tokenizer_fingerprint[:12]}; "
                    "use one tokenizer per job, or another `job` name"
                )
            self._read[partition] = checkpoint

    def _build(self, floor: Floor, counts: DecayedCounts, as_of_ms: int) -> Snapshot:
        inputs = WeightInputs(
            counts.half_lives_seconds,
            counts.counts_HV,
            counts.documents_HV,
            counts.tokens_H,
            counts.records_H,
        )
        checkpoints = [self._read[partition] for partition in sorted(self._read)]
        return Snapshot(
            job=self._recipe.job,
            version=floor.version + 1,
            epoch=floor.epoch,
            created_at_ms=self._clock.now_ms(),
            as_of_ms=as_of_ms,
            half_lives_seconds=counts.half_lives_seconds,
            counts_HV=counts.counts_HV,
            documents_HV=counts.documents_HV,
            tokens_H=counts.tokens_H,
            records_H=counts.records_H,
            offsets={item.partition: item.next_offset for item in checkpoints},
            tokenizer_name=self._recipe.tokenizer_name,
            tokenizer_fingerprint=self._recipe.tokenizer_fingerprint,
            weights={name: weigh(item, inputs) for name, item in self._recipe.weights.items()},
            schemes={name: item.model_dump() for name, item in self._recipe.weights.items()},
            gaps=tuple(gap for item in checkpoints for gap in item.gaps),
            labels={key: text for item in checkpoints for key, text in item.labels.items()},
            streamfreq_version=__version__,
        )
