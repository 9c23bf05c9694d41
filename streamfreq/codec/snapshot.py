"""A snapshot: what readers get, merged over all partitions and already decayed to `as_of_ms`.

Tensors: `counts` (H, V) float64, `documents` (H, V) float64 when kept, `weights.<scheme>` (V,)
float32. Shape legend: H horizons, V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamfreq.codec.envelope import Tensors, seal, unseal
from streamfreq.codec.state import (
    Gap,
    check_shapes,
    gaps_from_json,
    gaps_to_json,
    half_lives_from_json,
    half_lives_to_json,
)
from streamfreq.errors import SnapshotRefused
from streamfreq.records import Float32Array, FloatArray, TopicPartition

_WEIGHTS = "weights."


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Counts and weights at event time `as_of_ms`.

    It counts exactly the records below `offsets` of each partition, from where counting of the
    partition began, less the `gaps`. `schemes` holds the recipe of each weights tensor. Within
    one `epoch` (when it began, ms) version, `as_of_ms` and every partition's offset only grow; a
    new one begins when the store had lost everything, or the job was told to begin anew.
    """

    job: str
    version: int
    created_at_ms: int
    as_of_ms: int
    half_lives_seconds: tuple[float, ...]
    counts_HV: FloatArray
    documents_HV: FloatArray | None
    tokens_H: FloatArray
    records_H: FloatArray
    offsets: Mapping[TopicPartition, int]
    tokenizer_name: str
    tokenizer_fingerprint: str
    weights: Mapping[str, Float32Array] = field(default_factory=dict)
    schemes: Mapping[str, Any] = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()
    labels: Mapping[int, str] = field(default_factory=dict)
    streamfreq_version: str = ""
    epoch: int = 0

    @property
    def vocab_size(self) -> int:
        """V."""
        return int(self.counts_HV.shape[1])


@dataclass(frozen=True, slots=True)
class Floor:
    """What readers of a job have got: within its epoch no later snapshot goes below."""

    version: int = 0
    epoch: int = 0
    as_of_ms: int = -1
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def order(self) -> tuple[int, int]:
        """Which of two floors is the later one."""
        return self.epoch, self.version

    @staticmethod
    def of(snapshot: Snapshot) -> Floor:
        """Set by this snapshot."""
        return Floor(snapshot.version, snapshot.epoch, snapshot.as_of_ms, snapshot.offsets)


def encode_floor(floor: Floor) -> bytes:
    """A few bytes of JSON."""
    return json.dumps(
        {
            "version": floor.version,
            "epoch": floor.epoch,
            "as_of_ms": floor.as_of_ms,
            "offsets": _offsets_to_json(floor.offsets),
        }
    ).encode()


def decode_floor(data: bytes) -> Floor:
    """The inverse of `encode_floor`; raises SnapshotRefused for anything else."""
    try:
        fields = json.loads(data)
        return Floor(
            int(fields["version"]),
            int(fields["epoch"]),
            int(fields["as_of_ms"]),
            _offsets_from_json(fields["offsets"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SnapshotRefused(f"floor of the snapshots: damaged ({error!r})") from None


def _offsets_to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return topics


def _offsets_from_json(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The bytes under a store's key and in a snapshot file."""
    tensors: Tensors = {"counts": snapshot.counts_HV}
    if snapshot.documents_HV is not None:
        tensors["documents"] = snapshot.documents_HV
    for name, weights_V in snapshot.weights.items():
        tensors[_WEIGHTS + name] = weights_V.astype(np.float32, copy=False)
    return seal(tensors, snapshot_metadata(snapshot))


def snapshot_metadata(snapshot: Snapshot) -> dict[str, Any]:
    """All of a snapshot but its tensors, as JSON values (without `format` and `sha256`)."""
    return {
        "kind": "snapshot",
        "job": snapshot.job,
        "version": snapshot.version,
        "epoch": snapshot.epoch,
        "created_at_ms": snapshot.created_at_ms,
        "as_of_ms": snapshot.as_of_ms,
        "half_lives_seconds": half_lives_to_json(snapshot.half_lives_seconds),
        "tokens": snapshot.tokens_H.tolist(),
        "records": snapshot.records_H.tolist(),
        "offsets": _offsets_to_json(snapshot.offsets),
        "gaps": gaps_to_json(snapshot.gaps),
        "tokenizer": {
            "name": snapshot.tokenizer_name,
            "fingerprint": snapshot.tokenizer_fingerprint,
            "vocab_size": snapshot.vocab_size,
        },
        "schemes": dict(snapshot.schemes),
        "labels": {str(key): text for key, text in sorted(snapshot.labels.items())},
        "streamfreq_version": snapshot.streamfreq_version,
    }


def decode_snapshot(data: bytes, what: str = "snapshot") -> Snapshot:
    """The snapshot in `data`; raises SnapshotRefused, naming `what`, when it can't be used."""
    tensors, metadata = unseal(data, "snapshot", what, SnapshotRefused)
    try:
        _check_types(metadata)
        counts_HV = tensors["counts"]
        half_lives_seconds = half_lives_from_json(metadata["half_lives_seconds"])
        tokenizer = metadata["tokenizer"]
        snapshot = Snapshot(
            job=metadata["job"],
            version=metadata["version"],
            created_at_ms=metadata["created_at_ms"],
            as_of_ms=metadata["as_of_ms"],
            half_lives_seconds=half_lives_seconds,
            counts_HV=counts_HV,
            documents_HV=tensors.get("documents"),
            tokens_H=np.array(metadata["tokens"], np.float64),
            records_H=np.array(metadata["records"], np.float64),
            offsets=_offsets_from_json(metadata["offsets"]),
            tokenizer_name=tokenizer.get("name", ""),
            tokenizer_fingerprint=tokenizer["fingerprint"],
            weights={
                name.removeprefix(_WEIGHTS): tensor
                for name, tensor in tensors.items()
                if name.startswith(_WEIGHTS)
            },
            schemes=metadata.get("schemes", {}),
            gaps=gaps_from_json(metadata["gaps"]),
            labels={int(key): text for key, text in metadata.get("labels", {}).items()},
            streamfreq_version=metadata.get("streamfreq_version", ""),
            epoch=metadata.get("epoch", 0),
        )
        H, V = len(half_lives_seconds), tokenizer["vocab_size"]
        check_shapes(
            {
                "counts": (snapshot.counts_HV, (H, V)),
                "documents": (snapshot.documents_HV, (H, V)),
                "tokens": (snapshot.tokens_H, (H,)),
                "records": (snapshot.records_H, (H,)),
                **{_WEIGHTS + name: (item, (V,)) for name, item in snapshot.weights.items()},
            }
        )
        return snapshot
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = " ".join(repr(error).split())
        raise SnapshotRefused(f"{what}: not a snapshot of this format ({reason})") from None


def _check_types(metadata: dict[str, Any]) -> None:
    """Raise ValueError for a field that a checksum protects but that is not what we write."""
    wanted: dict[str, type | tuple[type, ...]] = {
        **dict.fromkeys(("format", "version", "created_at_ms", "as_of_ms"), int),
        **dict.fromkeys(("job",), str),
        **dict.fromkeys(("offsets", "tokenizer", "schemes", "labels"), dict),
        **dict.fromkeys(("half_lives_seconds", "tokens", "records", "gaps"), list),
    }
    if not isinstance(metadata.get("epoch", 0), int):
        raise ValueError("the epoch is no number")
    for name, kind in wanted.items():
        if not isinstance(metadata[name], kind) or isinstance(metadata[name], bool):
            raise ValueError(f"{name} is {metadata[name]!r:.40}")
    if not isinstance(metadata["tokenizer"]["fingerprint"], str):
        raise ValueError("the tokenizer's fingerprint is no text")
    if not all(isinstance(text, str) for text in metadata["labels"].values()):
        raise ValueError("a label is no text")
    offsets = [item for topic in metadata["offsets"].values() for item in topic.values()]
    if not all(isinstance(item, int) and item >= 0 for item in offsets):
        raise ValueError("an offset is no number")
    if not all(seconds > 0 for seconds in half_lives_from_json(metadata["half_lives_seconds"])):
        raise ValueError("a half-life is not above 0")
