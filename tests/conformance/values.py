"""Checkpoints and snapshots for tests, and what it means that two of them are the same."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from streamfreq.codec import Checkpoint, DecayedState, Gap, Snapshot
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


def make_checkpoint(version: int = 1, seed: int = 0, **changes: Any) -> Checkpoint:
    partition = changes.get("partition", NEWS)
    fields: dict[str, Any] = {
        "partition": partition,
        "version": version,
        "next_offset": 1_000 * version + seed,
        "state": make_state(seed),
        "tokenizer_fingerprint": "f" * 64,
        "created_at_ms": 1_700_000_000_000 + version,
        "gaps": (Gap(partition, 10, 20),),
        "labels": {7: "naïve", 3: "新闻\n"},
    }
    return Checkpoint(**{**fields, **changes})


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
