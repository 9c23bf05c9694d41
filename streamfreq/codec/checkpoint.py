"""A partition's checkpoint: counters and next offset as one value.

Only the vocabulary rows that hold anything are written. Shape legend: H horizons, V vocabulary,
U used rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamfreq.codec.envelope import Tensors, seal, unseal
from streamfreq.codec.state import (
    DecayedState,
    Gap,
    check_shapes,
    gaps_from_json,
    gaps_to_json,
    half_lives_from_json,
    half_lives_to_json,
)
from streamfreq.errors import CheckpointRefused
from streamfreq.records import FloatArray, Int32Array, TopicPartition


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """State after exactly the records below `next_offset` (from where counting began).

    `version` is 1 for the first checkpoint of a partition and grows by one with each commit.
    `labels` holds names of ids for people, best effort.
    """

    partition: TopicPartition
    version: int
    next_offset: int
    state: DecayedState
    tokenizer_fingerprint: str
    created_at_ms: int
    gaps: tuple[Gap, ...] = ()
    labels: dict[int, str] = field(default_factory=dict)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The checkpoint's bytes."""
    state = checkpoint.state
    used_V = state.counts_HV.any(axis=0)
    if state.documents_HV is not None:
        used_V |= state.documents_HV.any(axis=0)
    rows_U = np.flatnonzero(used_V).astype(np.int32)
    tensors: Tensors = {
        "rows": rows_U,
        "counts": state.counts_HV[:, rows_U],
        "landmarks": state.landmarks_H,
        "tokens": state.tokens_H,
        "records": state.records_H,
    }
    if state.documents_HV is not None:
        tensors["documents"] = state.documents_HV[:, rows_U]
    return seal(
        tensors,
        {
            "kind": "checkpoint",
            "topic": checkpoint.partition.topic,
            "partition": checkpoint.partition.partition,
            "version": checkpoint.version,
            "next_offset": checkpoint.next_offset,
            "created_at_ms": checkpoint.created_at_ms,
            "half_lives_seconds": half_lives_to_json(state.half_lives_seconds),
            "watermark_ms": state.watermark_ms,
            "tokenizer": {
                "fingerprint": checkpoint.tokenizer_fingerprint,
                "vocab_size": state.vocab_size,
            },
            "gaps": gaps_to_json(checkpoint.gaps),
            "labels": {str(key): text for key, text in sorted(checkpoint.labels.items())},
        },
    )


def decode_checkpoint(data: bytes, what: str = "checkpoint") -> Checkpoint:
    """The checkpoint in `data`; raises CheckpointRefused, naming `what`, when it is damaged."""
    tensors, metadata = unseal(data, "checkpoint", what, CheckpointRefused)
    try:
        V = metadata["tokenizer"]["vocab_size"]
        rows_U = tensors["rows"]
        documents_HU = tensors.get("documents")
        state = DecayedState(
            half_lives_from_json(metadata["half_lives_seconds"]),
            tensors["landmarks"],
            _dense(tensors["counts"], rows_U, V),
            None if documents_HU is None else _dense(documents_HU, rows_U, V),
            tensors["tokens"],
            tensors["records"],
            metadata["watermark_ms"],
        )
        H = len(state.half_lives_seconds)
        check_shapes(
            {
                "counts": (state.counts_HV, (H, V)),
                "documents": (state.documents_HV, (H, V)),
                "landmarks": (state.landmarks_H, (H,)),
                "tokens": (state.tokens_H, (H,)),
                "records": (state.records_H, (H,)),
            }
        )
        return Checkpoint(
            TopicPartition(metadata["topic"], metadata["partition"]),
            metadata["version"],
            metadata["next_offset"],
            state,
            metadata["tokenizer"]["fingerprint"],
            metadata["created_at_ms"],
            gaps_from_json(metadata["gaps"]),
            {int(key): text for key, text in metadata["labels"].items()},
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = " ".join(repr(error).split())
        raise CheckpointRefused(f"{what}: not a checkpoint of this format ({reason})") from None


def _dense(values_HU: FloatArray, rows_U: Int32Array, vocab_size: int) -> FloatArray:
    if rows_U.size and rows_U.min() < 0:
        raise ValueError("a row below 0")
    dense_HV = np.zeros((values_HU.shape[0], vocab_size))
    dense_HV[:, rows_U] = values_HU
    return dense_HV
