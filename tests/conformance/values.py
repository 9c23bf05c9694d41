"""Checkpoints and snapshots for tests, and what it means that two of them are the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamfreq.checkpoints import CheckpointStore
from streamfreq.codec import (
    NO_REVISION,
    Checkpoint,
    CheckpointUpdate,
    DecayedState,
    Gap,
    Revision,
    Snapshot,
    StateChanges,
    decode_checkpoint,
    encode_update,
)
from streamfreq.records import TopicPartition

NEWS = TopicPartition("news.en_2024-a", 3)


def make_state(seed: int = 0, vocab_size: int = 50, *, documents: bool = True) -> DecayedState:
    """Counts with many decimals, in about half of the rows."""
    random = np.random.default_rng(seed)
    counts_HV = random.exponential(size=(2, vocab_size)) * (random.random(vocab_size) < 0.5)
    return DecayedState(
        half_lives_seconds=(300.0, float("inf")),
        landmarks_H=np.array([5_666_666 + seed, 0], np.int64),
        counts_HV=counts_HV,
        documents_HV=counts_HV / 3 if documents else None,
        tokens_H=counts_HV.sum(axis=1),
        records_H=counts_HV.sum(axis=1) / 7,
        watermark_ms=1_700_000_000_123 + seed,
    )


def make_update(
    version: int = 1, seed: int = 0, *, token: str = "", after: str = "", **changes: Any
) -> CheckpointUpdate:
    """A whole update to `version`, behind the one that this function makes for the version before.

    token: its own (default: one that version and seed determine). after: the token it follows.
    """
    partition = changes.get("partition", NEWS)
    before = Revision(version - 1, after or make_token(version - 1)) if version > 1 else NO_REVISION
    fields: dict[str, Any] = {
        "partition": partition,
        "follows": before,
        "token": token or make_token(version, seed),
        "next_offset": 1_000 * version + seed,
        "changes": StateChanges.all_of(make_state(seed)),
        "tokenizer_fingerprint": "f" * 64,
        "created_at_ms": 1_700_000_000_000 + version,
        "gaps": (Gap(partition, 10, 20),),
        "labels": {7: "naïve", 3: "新闻\n"},
        "topic_id": "t0p1c",
        "topic_partitions": 4,
    }
    return CheckpointUpdate(**{**fields, **changes})


def make_changes(rows: Sequence[int], seed: int = 0, value: float = 1.5) -> StateChanges:
    """Those rows of a `make_state` changed to `value`."""
    H, U = 2, len(rows)
    whole = StateChanges.all_of(make_state(seed))
    return replace(
        whole,
        whole=False,
        rows_U=np.array(rows, np.int32),
        counts_HU=np.full((H, U), value),
        documents_HU=np.full((H, U), value / 2),
        tokens_H=whole.tokens_H + value,
        watermark_ms=whole.watermark_ms + 1,
    )


def make_token(version: int, seed: int = 0) -> str:
    return f"token-{version}-{seed}"


def stored(update: CheckpointUpdate) -> Checkpoint:
    """What a store holds once it has taken this whole update."""
    part = encode_update(update)
    return decode_checkpoint([part])


def make_checkpoint(version: int = 1, seed: int = 0, **changes: Any) -> Checkpoint:
    """What is stored once `make_update` with the same arguments is committed."""
    return stored(make_update(version, seed, **changes))


def versions(store: CheckpointStore) -> dict[TopicPartition, int]:
    """The version of every partition that has a checkpoint."""
    return {partition: revision.version for partition, revision in store.revisions().items()}


def make_snapshot(
    version: int = 1, seed: int = 0, vocab_size: int = 50, **changes: Any
) -> Snapshot:
    state = make_state(seed, vocab_size)
    fields: dict[str, Any] = {
        "job": "news",
        "version": version,
        "created_at_ms": 1_700_000_000_000 + version,
        "as_of_ms": 1_690_000_000_000 + seed,
        "half_lives_seconds": state.half_lives_seconds,
        "counts_HV": state.counts_HV,
        "documents_HV": state.documents_HV,
        "tokens_H": state.tokens_H,
        "records_H": state.records_H,
        "offsets": {NEWS: 2**53 + 1, TopicPartition("b", 0): 0},
        "tokenizer_name": "words",
        "tokenizer_fingerprint": "f" * 64,
        "weights": {"default": np.linspace(0.1, 10, vocab_size, dtype=np.float32)},
        "schemes": {"default": {"product": [{"scheme": "idf", "params": {"a": 0.2}}]}},
        "gaps": (Gap(NEWS, 10, 20),),
        "labels": {7: "naïve", 3: "新闻\n"},
        "streamfreq_version": "0.1.0",
        "epoch": 1_650_000_000_000,
    }
    return Snapshot(**{**fields, **changes})


def same(one: Any, other: Any) -> bool:
    """Equal to the last bit: arrays by type, shape and bytes, everything else by value."""
    if dataclasses.is_dataclass(one) and type(one) is type(other):
        return all(
            same(getattr(one, field.name), getattr(other, field.name))
            for field in dataclasses.fields(one)
        )
    if isinstance(one, np.ndarray):
        return (
            isinstance(other, np.ndarray)
            and (one.dtype, one.shape) == (other.dtype, other.shape)
            and one.tobytes() == other.tobytes()
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)
