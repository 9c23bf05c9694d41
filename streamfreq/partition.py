"""One partition while it is ours: counters and next offset move together, and commit as one value.

A Partition is used once: when it is revoked, lost, or in conflict it closes, and whatever is still
queued for it is ignored; the next owner begins from the checkpoint.
"""

from __future__ import annotations

import threading

from streamfreq.checkpoints.base import CheckpointStore
from streamfreq.codec import Checkpoint, DecayedState, Gap
from streamfreq.counting import Counters
from streamfreq.errors import CheckpointConflict
from streamfreq.records import Int64Array, TokenBatch, TopicPartition

MAX_LABELS = 2_000
"""So many names of ids a checkpoint carries at most."""


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
        self._version = 0 if checkpoint is None else checkpoint.version
        self._next_offset = None if checkpoint is None else checkpoint.next_offset
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

    def count(
        self, tokens: TokenBatch, event_times_ms_R: Int64Array, first_offset: int, next_offset: int
    ) -> bool:
        """Count a batch that begins at `first_offset`, and move on to `next_offset`, as one step.

        Returns False, and counts nothing, when the partition is closed. Without a checkpoint the
        offsets below the first batch are recorded as a gap: counting began there.
        """
        with self._state_lock:
            if self._closed:
                return False
            if self._next_offset is None and first_offset > 0:
                self._gaps = with_gap(self._gaps, Gap(self.partition, 0, first_offset))
            next_offset = max(next_offset, self._next_offset or 0)
            if len(tokens):
                self._counters.update(tokens, event_times_ms_R)
            self._dirty |= next_offset != self._next_offset
            self._next_offset = next_offset
            return True

    def add_gap(self, first: int, last: int) -> None:
        """Offsets `first` to `last` (exclusive) will never be counted.

        The next offset stays: records below `first` may still be queued. It moves with the next
        batch, which begins at or beyond `last`.
        """
        with self._state_lock:
            self._gaps = with_gap(self._gaps, Gap(self.partition, first, last))
            self._dirty = True

    def commit(self, store: CheckpointStore, now_ms: int, labels: dict[int, str]) -> int | None:
        """Write what is counted; returns the committed next offset, None when nothing changed.

        1. Copy counters and next offset together, so that they belong to each other.
        2. Write both as one value if the stored version is still the one that we built on.
        3. Only then build on the new version.

        Raises CheckpointConflict when another worker committed since: the partition closes, and
        nothing was written. Raises ServiceUnavailable when the store is away: nothing is lost,
        the next commit writes it.
        """
        with self._commit_lock:
            with self._state_lock:  # 1
                if self._closed or not self._dirty or self._next_offset is None:
                    return None
                state = self._counters.state()
                checkpoint = Checkpoint(
                    partition=self.partition,
                    version=self._version + 1,
                    next_offset=self._next_offset,
                    state=state,
                    tokenizer_fingerprint=self._fingerprint,
                    created_at_ms=now_ms,
                    gaps=self._gaps,
                    labels=self._heaviest_labels(state, labels),
                )
                self._dirty = False
            try:
                store.commit(checkpoint)  # 2
            except CheckpointConflict:
                self.close()
                raise
            except BaseException:
                with self._state_lock:
                    self._dirty = True
                raise
            self._version = checkpoint.version  # 3
            return checkpoint.next_offset

    def _heaviest_labels(self, state: DecayedState, labels: dict[int, str]) -> dict[int, str]:
        """Names from the checkpoint and from this process, of ids that this partition counts.

        The heaviest stay: what they are called must outlive the process that read them.
        """
        weights_V = state.counts_HV.max(axis=0)
        known = {key: text for key, text in {**self._labels, **labels}.items() if weights_V[key]}
        if len(known) > MAX_LABELS:
            heaviest = sorted(known, key=lambda key: -weights_V[key])[:MAX_LABELS]
            known = {key: known[key] for key in heaviest}
        self._labels = known
        return known

    def stored_version_is(self, version: int) -> int | None:
        """Compare with what the store says; the version that it has lost, or None.

        A store that went back to an older state, or to none, no longer has what was committed.
        This partition still does: all of it is written again, as the successor of what is there.
        """
        with self._commit_lock, self._state_lock:
            if self._closed or version >= self._version:
                return None
            lost, self._version, self._dirty = self._version, version, True
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
