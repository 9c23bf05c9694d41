"""Which partitions are ours: restore on assignment, commit on revoke, reload on conflict."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamfreq.checkpoints.base import CheckpointStore
from streamfreq.clock import Clock
from streamfreq.codec import Checkpoint
from streamfreq.counting import Counters
from streamfreq.errors import CheckpointRefused, ServiceUnavailable
from streamfreq.partition import Partition
from streamfreq.records import TopicPartition
from streamfreq.sources.base import StartAt

log = logging.getLogger("streamfreq.daemon")

REVOKE_SECONDS = 10.0
"""So long the whole group waits at most for our commits when partitions are taken away."""
LOAD_SECONDS = 10.0
"""So long at most one call loads checkpoints: the group waits, and polling does."""


@dataclass(frozen=True, slots=True)
class CountersSpec:
    """How the counters of a new partition are made, and what a checkpoint has to fit."""

    half_lives_seconds: tuple[float, ...]
    vocab_size: int
    documents: bool
    device: str
    ids_per_token: int
    fingerprint: str

    def fresh(self) -> Counters:
        """Counters that hold nothing."""
        return Counters(
            self.half_lives_seconds,
            self.vocab_size,
            documents=self.documents,
            device=self.device,
            ids_per_token=self.ids_per_token,
        )

    def restore(self, checkpoint: Checkpoint) -> Counters:
        """The checkpoint's counters; raises CheckpointRefused when they were made differently."""
        state = checkpoint.state
        way_out = "keep the settings of the job, or choose another `job` name to begin anew"
        if checkpoint.tokenizer_fingerprint != self.fingerprint:
            raise CheckpointRefused(
                f"checkpoint of {checkpoint.partition}: counted with tokenizer "
                f"{checkpoint.tokenizer_fingerprint[:12]} ({state.vocab_size} ids), now configured "
                f"is {self.fingerprint[:12]} ({self.vocab_size} ids); {way_out}"
            )
        if state.half_lives_seconds != self.half_lives_seconds:
            raise CheckpointRefused(
                f"checkpoint of {checkpoint.partition}: counted with half-lives "
                f"{list(state.half_lives_seconds)} s, configured are "
                f"{list(self.half_lives_seconds)} s; {way_out}"
            )
        if (state.documents_HV is not None) != self.documents:
            raise CheckpointRefused(
                f"checkpoint of {checkpoint.partition}: document counts are "
                f"{'kept' if state.documents_HV is not None else 'not kept'} there, "
                f"counting.documents says otherwise; {way_out}"
            )
        return Counters.from_state(state, device=self.device, ids_per_token=self.ids_per_token)


@dataclass(frozen=True, slots=True)
class Told:
    """Whom an Assignment tells what happens.

    commit: write these partitions, within so many seconds. restored: a partition goes on at this
    committed offset. gap: so many of its offsets will never be counted. alive: the poll thread is
    at work, though its poll has not returned.
    """

    commit: Callable[[Sequence[Partition], float], object]
    restored: Callable[[TopicPartition, int], object]
    gap: Callable[[TopicPartition, int], object]
    alive: Callable[[], object]


class Assignment:
    """The source's listener: holds a Partition for each partition that is ours.

    The poll thread calls everything but `current`, `get` and `commit`, which any thread may call.
    """

    def __init__(
        self,
        spec: CountersSpec,
        checkpoints: CheckpointStore,
        start: Callable[[], StartAt],
        told: Told,
        clock: Clock,
    ) -> None:
        self._spec = spec
        self._checkpoints = checkpoints
        self._start = start
        self._told = told
        self._clock = clock
        self._lock = threading.Lock()
        self._partitions: dict[TopicPartition, Partition] = {}
        self._unloaded: set[TopicPartition] = set()

    @property
    def unloaded(self) -> frozenset[TopicPartition]:
        """Partitions that are ours but wait for their checkpoint, since the store is away."""
        return frozenset(self._unloaded)

    def current(self) -> list[Partition]:
        """The partitions that are counted now."""
        with self._lock:
            return list(self._partitions.values())

    def get(self, partition: TopicPartition) -> Partition | None:
        """The object that counts `partition`, if it is ours and loaded."""
        with self._lock:
            return self._partitions.get(partition)

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, StartAt]:
        """Restore each partition from its checkpoint; without the store it waits, unread."""
        self._unloaded.update(partitions)
        if partitions:
            log.info("assigned %s", " ".join(map(str, sorted(partitions))))
        return self._load(partitions)

    def load_pending(self) -> Mapping[TopicPartition, StartAt]:
        """Load what waits for its checkpoint; the answer says where to begin what was loaded."""
        return self._load(self._unloaded)

    def _load(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, StartAt]:
        """As many as the store gives within `LOAD_SECONDS`; the rest waits for the next call."""
        starts: dict[TopicPartition, StartAt] = {}
        deadline = self._clock.monotonic() + LOAD_SECONDS
        for partition in sorted(partitions):
            self._told.alive()
            if self._clock.monotonic() >= deadline:
                break
            try:
                starts[partition] = self._load_one(partition)
            except ServiceUnavailable as error:
                log.warning("%s waits for its checkpoint: %s", partition, error)
                break
            self._unloaded.discard(partition)
        return starts

    def _load_one(self, partition: TopicPartition) -> StartAt:
        checkpoint = self._checkpoints.load(partition)
        if checkpoint is None:
            start = self._start_of(partition)
            counters = self._spec.fresh()
            log.info("%s has no checkpoint: begins at: %s", partition, start)
        else:
            start = StartAt(offset=checkpoint.next_offset)
            counters = self._spec.restore(checkpoint)
            self._told.restored(partition, checkpoint.next_offset)
            log.info(
                "%s restored: version %d, next offset %d",
                *(partition, checkpoint.version, checkpoint.next_offset),
            )
        with self._lock:
            self._partitions[partition] = Partition(
                partition, counters, self._spec.fingerprint, checkpoint
            )
        return start

    def _start_of(self, partition: TopicPartition) -> StartAt:
        """Where a partition without a checkpoint begins.

        One that the topic did not have when counting of it began holds only records that came
        since, so it begins with the first of them, wherever the others began.
        """
        configured = self._start()
        if configured.policy == "earliest":
            return configured
        topic = [one for one in self._checkpoints.revisions() if one.topic == partition.topic]
        oldest = self._checkpoints.load(min(topic)) if topic else None
        if oldest is not None and 0 < oldest.topic_partitions <= partition.partition:
            return StartAt(policy="earliest")
        return configured

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit what is counted, in bounded time, and let go."""
        with self._lock:
            leaving = [item for key in partitions if (item := self._partitions.get(key))]
        self._told.commit(leaving, REVOKE_SECONDS)
        self._drop(partitions)
        if partitions:
            log.info("revoked %s", " ".join(map(str, sorted(partitions))))

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Somebody else owns them already: what is not committed is theirs to count."""
        self._drop(partitions)
        if partitions:
            log.warning("lost %s to another worker", " ".join(map(str, sorted(partitions))))

    def on_gap(self, partition: TopicPartition, first: int, last: int) -> None:
        """The broker no longer has these offsets; it is recorded in the next snapshot."""
        item = self.get(partition)
        if item is not None:
            item.add_gap(first, last)
            self._told.gap(partition, last - first)

    def collect_conflicts(self) -> list[TopicPartition]:
        """Partitions that closed in conflict while still ours: their checkpoint is due anew."""
        with self._lock:
            conflicts = [key for key, item in self._partitions.items() if item.closed]
            for key in conflicts:
                del self._partitions[key]
        self._unloaded.update(conflicts)
        return conflicts

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        with self._lock:
            dropped = [self._partitions.pop(key, None) for key in partitions]
        for item in dropped:
            if item is not None:
                item.close()
        self._unloaded.difference_update(partitions)
