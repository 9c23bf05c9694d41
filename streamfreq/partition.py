"""One partition while it is ours: counters and next offset move together, and commit as one value.

A Partition is used once: when it is revoked, lost, or in conflict it closes, and whatever is still
queued for it is ignored; the next owner begins from the checkpoint.
"""

from __future__ import annotations

import threading
import uuid
import zlib
from collections.abc import Callable, Mapping

import numpy as np

from streamfreq import faults
from streamfreq.checkpoints.base import CheckpointStore
from streamfreq.codec import NO_REVISION, Chain, Checkpoint, CheckpointUpdate, Gap, Revision
from streamfreq.counting import Counters
from streamfreq.errors import CheckpointConflict, DataRefused, StreamfreqError, count_anew
from streamfreq.records import Int64Array, RecordBatch, TokenBatch, TopicPartition

Labels = Callable[[], Mapping[int, str]]

MAX_LABELS = 2_000
"""So many names of ids a checkpoint carries at most."""

_WRITE_WHOLE = Chain()
"""Nothing is known of what is stored, so that the next part has to be a whole one."""


class Partition:
    """Counts records of one partition and commits them by compare-and-swap.

    One thread counts; any thread may commit or close. `fingerprint` is the tokenizer's.
    """

    def __init__(
        self,
        partition: TopicPartition,
        counters: Counters,
        fingerprint: str,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.partition = partition
        self._counters = counters
        self._fingerprint = fingerprint
        self._revision = NO_REVISION if checkpoint is None else checkpoint.revision
        self._unsure: tuple[Revision, Chain] | None = None
        self._chain = Chain() if checkpoint is None else checkpoint.chain
        # Partitions that fill alike would else all write their whole checkpoints in one round.
        self._patience = 0.75 + zlib.crc32(str(partition).encode()) / 2**34
        self._next_offset = None if checkpoint is None else checkpoint.next_offset
        self._topic_id = "" if checkpoint is None else checkpoint.topic_id
        self._topic_partitions = 0 if checkpoint is None else checkpoint.topic_partitions
        self._gaps = () if checkpoint is None else checkpoint.gaps
        self._labels = {} if checkpoint is None else dict(checkpoint.labels)
        self._dirty = False
        self._closed = False
        self._state_lock = threading.Lock()
        self._commit_lock = threading.Lock()

    @property
    def next_offset(self) -> int | None:
        """Records below are counted, those at or above are not; None: nothing is known yet."""
        return self._next_offset

    @property
    def dirty(self) -> bool:
        """Whether there is anything to commit."""
        return self._dirty and not self._closed

    @property
    def watermark_ms(self) -> int:
        """The latest event time counted; -1: none."""
        return self._counters.watermark_ms

    @property
    def closed(self) -> bool:
        """Whether counting for this object has ended."""
        return self._closed

    def count(self, tokens: TokenBatch, event_times_ms_R: Int64Array, batch: RecordBatch) -> bool:
        """Count the tokens of `batch`, and move on to its next offset, as one step.

        Returns False, and counts nothing, when the partition is closed. Without a checkpoint the
        offsets below the first batch are recorded as a gap: counting began there. Raises
        DataRefused, and counts nothing, when the batch is of another topic of the same name.
        """
        first_offset = int(batch.offsets_R[0]) if len(batch) else batch.next_offset
        with self._state_lock:
            if self._closed:
                return False
            self._require_same_topic(batch.topic_id)
            if self._next_offset is None:
                self._topic_partitions = batch.topic_partitions
            if self._next_offset is None and first_offset > 0:
                self._gaps = with_gap(self._gaps, Gap(self.partition, 0, first_offset))
            next_offset = max(batch.next_offset, self._next_offset or 0)
            if len(tokens):
                self._update(tokens, event_times_ms_R)
            self._dirty |= next_offset != self._next_offset
            self._next_offset = next_offset
            return True

    def _update(self, tokens: TokenBatch, event_times_ms_R: Int64Array) -> None:
        try:
            self._counters.update(tokens, event_times_ms_R)
        except (StreamfreqError, ValueError):
            raise  # refused before anything was counted
        except BaseException:
            # Out of memory in the midst of it: some of the batch may be counted, and must not be
            # committed. It is read again from the checkpoint.
            self._closed = True
            raise

    def _require_same_topic(self, topic_id: str) -> None:
        if topic_id and self._topic_id and topic_id != self._topic_id:
            topic = self.partition.topic
            raise DataRefused(
                f"topic {topic} was deleted and made again (its id was {self._topic_id}, now it is "
                f"{topic_id}), so its offsets mean other records; {count_anew(topic)}"
            )
        self._topic_id = self._topic_id or topic_id

    def add_gap(self, first: int, last: int) -> None:
        """Offsets `first` to `last` (exclusive) will never be counted.

        The next offset stays: records below `first` may still be queued. It moves with the next
        batch, which begins at or beyond `last`.
        """
        with self._state_lock:
            self._gaps = with_gap(self._gaps, Gap(self.partition, first, last))
            self._dirty = True

    def commit(self, store: CheckpointStore, now_ms: int, labels: Labels = dict) -> int | None:
        """Write what is counted; returns the committed next offset, None when nothing changed.

        `labels` is asked for the names of ids once the counts are taken: it knows all of them.

        1. Take what changed and the next offset together, so that they belong to each other.
        2. Write both as one value if what is stored is what we built on.
        3. Only then build on the new revision.

        Raises CheckpointConflict when another worker committed since: the partition closes, and
        nothing was written. Raises ServiceUnavailable when the store is away: nothing is lost,
        the next commit writes it.
        """
        with self._commit_lock:
            faults.reach("commit.1")
            update = self._take_update(now_ms, labels)  # 1
            if update is None:
                return None
            faults.reach("commit.2")
            try:
                store.commit(update)  # 2
            except CheckpointConflict:
                self.close()
                raise
            except BaseException:
                with self._state_lock:
                    self._counters.put_back(update.changes)
                    self._dirty = True
                    self._unsure = update.revision, self._chain.then(update.changes)
                raise
            faults.reach("commit.3")
            self._revision = update.revision  # 3
            self._unsure = None
            self._chain = self._chain.then(update.changes)
            self._labels = self._labels if update.labels is None else update.labels
            faults.reach("commit.4")
            return update.next_offset

    def _take_update(self, now_ms: int, labels: Labels) -> CheckpointUpdate | None:
        with self._state_lock:
            if self._closed or not self._dirty or self._next_offset is None:
                return None
            whole = self._chain.full_for(self._counters.changed_rows, self._patience)
            changes = self._counters.take_changes(whole=whole)
            try:
                known = self._heaviest_labels(labels())
            except BaseException:
                self._counters.put_back(changes)
                raise
            self._dirty = False
            return CheckpointUpdate(
                partition=self.partition,
                follows=self._revision,
                token=uuid.uuid4().hex,
                next_offset=self._next_offset,
                changes=changes,
                tokenizer_fingerprint=self._fingerprint,
                created_at_ms=now_ms,
                gaps=self._gaps,
                labels=known if changes.whole or known != self._labels else None,
                topic_id=self._topic_id,
                topic_partitions=self._topic_partitions,
            )

    def _heaviest_labels(self, labels: Mapping[int, str]) -> dict[int, str]:
        """Names from the checkpoint and from this process, of ids that this partition counts.

        The heaviest stay: what they are called must outlive the process that read them.
        """
        known = {**self._labels, **labels}
        if not known:
            return known
        ids_K = np.fromiter(known, np.int32, len(known))
        weights_K = self._counters.counts_of(ids_K).max(axis=0)
        counted_K = np.flatnonzero(weights_K)
        heaviest = counted_K[np.argsort(-weights_K[counted_K], kind="stable")][:MAX_LABELS]
        return {(key := int(ids_K[k])): known[key] for k in heaviest}

    def compare_with_stored(self, stored: Revision) -> int | None:
        """Compare with what the store says; the version that it has lost, or None.

        A store that went back to an older state, or to none, no longer has what was committed.
        This partition still does: all of it is written again, as the successor of what is there.
        A write whose answer was lost, and that was done, is taken for done.
        """
        with self._commit_lock, self._state_lock:
            if self._closed or stored == self._revision:
                return None
            if self._unsure is not None and stored == self._unsure[0]:
                # Its rows were put back, and are written again: harmless, as they are absolute.
                (self._revision, self._chain), self._unsure = self._unsure, None
                return None
            if stored.version >= self._revision.version:
                return None  # another worker's; the commit will tell
            lost = self._revision.version
            self._revision, self._chain, self._dirty = stored, _WRITE_WHOLE, True
            return lost

    def close(self) -> None:
        """Count nothing more, commit nothing more."""
        with self._state_lock:
            self._closed = True


def with_gap(gaps: tuple[Gap, ...], gap: Gap) -> tuple[Gap, ...]:
    """The gaps of one partition with one more, in order; those that touch become one.

    A crash may find the same gap again, or a wider one, so adding is idempotent.
    """
    merged: list[Gap] = []
    for item in sorted((*gaps, gap), key=lambda item: item.first):
        if merged and item.first <= merged[-1].last:
            previous = merged.pop()
            item = Gap(item.partition, previous.first, max(previous.last, item.last))
        merged.append(item)
    return tuple(merged)
