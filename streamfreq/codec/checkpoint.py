"""A partition's checkpoint: counters and next offset as one value.

It is kept as a whole part and the changes behind it, each of which names the part that it follows.
Only the vocabulary rows that hold anything, or that changed, are written. Shape legend: H
horizons, V vocabulary, U rows that are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streamfreq.codec.envelope import Tensors, seal, unseal
from streamfreq.codec.state import (
    DecayedState,
    Gap,
    StateChanges,
    check_shapes,
    gaps_from_json,
    gaps_to_json,
    half_lives_from_json,
    half_lives_to_json,
)
from streamfreq.errors import CheckpointRefused
from streamfreq.records import TopicPartition

MAX_CHANGES = 256
"""So many changes at most lie behind a whole part: each costs a reader a little."""


class Revision(NamedTuple):
    """Tells a stored checkpoint from every other one of its partition.

    `version` grows by one with each commit; `token` is made anew for each, so that a store which
    went back to an older state and on again by another way does not look the same.
    """

    version: int
    token: str


NO_REVISION = Revision(0, "")
"""There is no checkpoint yet."""


@dataclass(frozen=True, slots=True)
class Chain:
    """What a stored checkpoint is made of: rows in the whole part, and in how many changes."""

    whole_rows: int = 0
    changed_rows: int = 0
    changes: int = 0

    def then(self, changes: StateChanges) -> Chain:
        """With one more part."""
        rows = len(changes.rows_U)
        if changes.whole:
            return Chain(rows)
        return Chain(self.whole_rows, self.changed_rows + rows, self.changes + 1)

    def full_for(self, rows: int, patience: float = 1.0) -> bool:
        """Whether a change of so many rows is better written as a whole part.

        As soon as the changes would have more rows than the whole part times `patience` (at most
        1): what is stored stays below twice the whole part, and what is written below
        1 + 1 / patience times what changed.
        """
        if not self.whole_rows or self.changes >= MAX_CHANGES:
            return True  # there is no whole part, or one without a row
        return self.changed_rows + rows > self.whole_rows * patience


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """State after exactly the records below `next_offset` (from where counting began).

    `labels` holds names of ids for people, best effort. `topic_id` tells the topic from one of
    the same name that was made later; "" when the source has no such thing. `topic_partitions` is
    how many the topic had when counting of this partition began: those beyond came later.
    """

    partition: TopicPartition
    revision: Revision
    next_offset: int
    state: DecayedState
    tokenizer_fingerprint: str
    created_at_ms: int
    gaps: tuple[Gap, ...] = ()
    labels: dict[int, str] = field(default_factory=dict)
    topic_id: str = ""
    topic_partitions: int = 0
    chain: Chain = Chain()

    @property
    def version(self) -> int:
        """1 for the first checkpoint of a partition, one more with each commit."""
        return self.revision.version


@dataclass(frozen=True, slots=True, eq=False)
class CheckpointUpdate:
    """What one commit writes: the next checkpoint as its difference to the one that it follows.

    `labels` None: as before. `token` is this commit's own: the same update sent twice is one.
    """

    partition: TopicPartition
    follows: Revision
    token: str
    next_offset: int
    changes: StateChanges
    tokenizer_fingerprint: str
    created_at_ms: int
    gaps: tuple[Gap, ...] = ()
    labels: dict[int, str] | None = None
    topic_id: str = ""
    topic_partitions: int = 0

    @property
    def revision(self) -> Revision:
        """The revision that is stored once it is committed."""
        return Revision(self.follows.version + 1, self.token)


def encode_update(update: CheckpointUpdate) -> bytes:
    """The part that this update adds to its partition's checkpoint."""
    changes = update.changes
    tensors: Tensors = {
        "rows": changes.rows_U,
        "counts": changes.counts_HU,
        "landmarks": changes.landmarks_H,
        "tokens": changes.tokens_H,
        "records": changes.records_H,
    }
    if changes.documents_HU is not None:
        tensors["documents"] = changes.documents_HU
    labels = update.labels
    return seal(
        tensors,
        {
            "kind": "checkpoint",
            "topic": update.partition.topic,
            "topic_id": update.topic_id,
            "topic_partitions": update.topic_partitions,
            "partition": update.partition.partition,
            "version": update.revision.version,
            "token": update.token,
            "follows": None if changes.whole else update.follows.token,
            "next_offset": update.next_offset,
            "created_at_ms": update.created_at_ms,
            "half_lives_seconds": half_lives_to_json(changes.half_lives_seconds),
            "watermark_ms": changes.watermark_ms,
            "tokenizer": {
                "fingerprint": update.tokenizer_fingerprint,
                "vocab_size": changes.vocab_size,
            },
            "gaps": gaps_to_json(update.gaps),
            "labels": None
            if labels is None
            else {str(key): text for key, text in sorted(labels.items())},
        },
    )


def decode_checkpoint(
    parts: Sequence[bytes], what: str = "checkpoint", known: Checkpoint | None = None
) -> Checkpoint:
    """The checkpoint made of these parts, the first of which is whole or follows `known`.

    The arrays of `known` are taken over. Raises CheckpointRefused, naming `what`, when a part is
    damaged or does not follow the one before.
    """
    updates = [_decode_part(part, what) for part in parts]
    checkpoint = known
    before = NO_REVISION if known is None else known.revision
    for update in updates:
        if not update.changes.whole and update.follows != before:
            raise CheckpointRefused(
                f"{what}: version {update.revision.version} does not follow version "
                f"{before.version}, which is stored in front of it"
            )
        before = update.revision
    try:
        for update in updates:
            checkpoint = _applied(update, checkpoint)
    except ValueError as error:
        raise CheckpointRefused(f"{what}: not a checkpoint of this format ({error})") from None
    if checkpoint is None:
        raise CheckpointRefused(f"{what}: holds nothing")
    return checkpoint


def _applied(update: CheckpointUpdate, before: Checkpoint | None) -> Checkpoint:
    state = update.changes.applied_to(None if before is None else before.state)
    labels = update.labels
    if labels is None:
        labels = {} if before is None else before.labels
    chain = Chain() if before is None else before.chain
    return Checkpoint(
        update.partition,
        update.revision,
        update.next_offset,
        state,
        update.tokenizer_fingerprint,
        update.created_at_ms,
        update.gaps,
        labels,
        update.topic_id,
        update.topic_partitions,
        chain.then(update.changes),
    )


def _decode_part(data: bytes, what: str) -> CheckpointUpdate:
    tensors, metadata = unseal(data, "checkpoint", what, CheckpointRefused)
    try:
        changes = _decode_changes(tensors, metadata)
        labels = metadata["labels"]
        return CheckpointUpdate(
            TopicPartition(metadata["topic"], metadata["partition"]),
            Revision(metadata["version"] - 1, metadata["follows"] or ""),
            metadata["token"],
            metadata["next_offset"],
            changes,
            metadata["tokenizer"]["fingerprint"],
            metadata["created_at_ms"],
            gaps_from_json(metadata["gaps"]),
            None if labels is None else {int(key): text for key, text in labels.items()},
            metadata["topic_id"],
            metadata["topic_partitions"],
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = " ".join(repr(error).split())
        raise CheckpointRefused(f"{what}: not a checkpoint of this format ({reason})") from None


def _decode_changes(tensors: Tensors, metadata: dict[str, Any]) -> StateChanges:
    half_lives_seconds = half_lives_from_json(metadata["half_lives_seconds"])
    V = metadata["tokenizer"]["vocab_size"]
    changes = StateChanges(
        half_lives_seconds,
        V,
        metadata["follows"] is None,
        tensors["landmarks"],
        tensors["rows"],
        tensors["counts"],
        tensors.get("documents"),
        tensors["tokens"],
        tensors["records"],
        metadata["watermark_ms"],
    )
    H, U = len(half_lives_seconds), len(changes.rows_U)
    check_shapes(
        {
            "rows": (changes.rows_U, (U,)),
            "counts": (changes.counts_HU, (H, U)),
            "documents": (changes.documents_HU, (H, U)),
            "landmarks": (changes.landmarks_H, (H,)),
            "tokens": (changes.tokens_H, (H,)),
            "records": (changes.records_H, (H,)),
        }
    )
    if U and not (int(changes.rows_U.min()) >= 0 and int(changes.rows_U.max()) < V):
        raise ValueError(f"a row is not in [0, {V})")
    return changes
