"""Merges the committed checkpoints of all partitions into the next snapshot, and publishes it.

Only what is committed is read, so that no reader ever sees what a crash can take back.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from streamfreq import __version__
from streamfreq.checkpoints.base import CheckpointStore
from streamfreq.clock import Clock
from streamfreq.codec import Checkpoint, Snapshot
from streamfreq.config import SnapshotsConfig, WeightsConfig
from streamfreq.counting import DecayedCounts, decay_to, merge
from streamfreq.errors import CheckpointRefused
from streamfreq.records import TopicPartition
from streamfreq.snapshots.base import PublisherLease, SnapshotInfo, SnapshotStore
from streamfreq.weighting import WeightInputs, weigh

log = logging.getLogger("streamfreq.publisher")


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
        self._read: dict[TopicPartition, tuple[str, Checkpoint]] = {}
        self._published: dict[TopicPartition, str] = {}
        self._published_version = 0
        self._stale = False

    @property
    def lease_seconds(self) -> float:
        """After so long without renewal another publisher takes over."""
        return self._config.lease_seconds

    def keep_lease(self) -> bool:
        """Take or renew the lease; whether it is ours."""
        return self._lease.acquire() is not None

    def latest_info(self) -> SnapshotInfo | None:
        """The latest snapshot of the job, whoever published it."""
        return next((info for info in self._snapshots.infos() if info.latest), None)

    def publish(self) -> Snapshot | None:
        """Publish the next snapshot; None when it is not our turn or there is nothing new.

        1. Take or renew the lease; its fencing token goes with the snapshot.
        2. Read the checkpoints that are newer than those read before.
        3. Merge them and decay them to one time.
        4. Nothing left above the floor: the last snapshot stays and is marked stale.
        5. Weigh.
        6. Publish under the next version; the store refuses an older fencing token.

        Raises FencedOut when another publisher took over between 1 and 6, CheckpointRefused when
        a checkpoint was written with another tokenizer, ServiceUnavailable when the store is away.
        """
        fence = self._lease.acquire()  # 1
        if fence is None:
            return None
        self._refresh()  # 2
        latest = self._latest_version()
        revisions = {partition: revision for partition, (revision, _) in self._read.items()}
        known = revisions == self._published and latest == self._published_version
        by_clock = self._config.as_of == "clock"
        if not revisions or (known and not by_clock):
            return None
        state = merge([item.state for _, item in self._read.values()])  # 3
        as_of_ms = state.watermark_ms
        if by_clock:
            as_of_ms = max(as_of_ms, self._clock.now_ms())
        counts = decay_to(state, as_of_ms)
        if not (counts.tokens_H > self._config.min_mass).any():  # 4
            self._mark_stale(counted=state.watermark_ms >= 0)
            return None
        version = max(latest, self._published_version) + 1
        snapshot = self._build(version, counts, as_of_ms)  # 5
        self._snapshots.publish(snapshot, fence)  # 6
        self._published, self._published_version = revisions, version
        self._stale = False
        return snapshot

    def release(self) -> None:
        """Give the lease back so that another daemon publishes without waiting for it to expire."""
        self._lease.release()

    def _latest_version(self) -> int:
        """The store's latest version; lower than what we published when the store lost writes."""
        latest = self._snapshots.latest_version()
        if latest < self._published_version:
            log.error(
                "the store lost snapshots: version %d was published, now %s is the latest; "
                "publishing goes on at version %d",
                self._published_version,
                latest or "none",
                self._published_version + 1,
            )
        return latest

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
            if known is not None and known[0] == revision:
                continue
            checkpoint = self._checkpoints.load(partition)
            if checkpoint is None:
                continue
            if checkpoint.tokenizer_fingerprint != self._recipe.tokenizer_fingerprint:
                raise CheckpointRefused(
                    f"checkpoint of {partition} was counted with tokenizer "
                    f"{checkpoint.tokenizer_fingerprint[:12]}, this daemon has "
                    f"{self._recipe.tokenizer_fingerprint[:12]}; "
                    "use one tokenizer per job, or another `job` name"
                )
            self._read[partition] = (revision, checkpoint)

    def _build(self, version: int, counts: DecayedCounts, as_of_ms: int) -> Snapshot:
        inputs = WeightInputs(
            counts.half_lives_seconds,
            counts.counts_HV,
            counts.documents_HV,
            counts.tokens_H,
            counts.records_H,
        )
        checkpoints = [self._read[partition][1] for partition in sorted(self._read)]
        return Snapshot(
            job=self._recipe.job,
            version=version,
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
