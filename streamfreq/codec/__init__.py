"""Checkpoints and snapshots as values and as bytes (safetensors; never pickle)."""

from streamfreq.codec.checkpoint import (
    NO_REVISION,
    Chain,
    Checkpoint,
    CheckpointUpdate,
    Revision,
    decode_checkpoint,
    encode_update,
)
from streamfreq.codec.envelope import FORMAT
from streamfreq.codec.snapshot import (
    Floor,
    Snapshot,
    decode_floor,
    decode_snapshot,
    encode_floor,
    encode_snapshot,
)
from streamfreq.codec.state import DecayedState, Gap, StateChanges

__all__ = [
    "FORMAT",
    "NO_REVISION",
    "Chain",
    "Checkpoint",
    "CheckpointUpdate",
    "DecayedState",
    "Floor",
    "Gap",
    "Revision",
    "Snapshot",
    "StateChanges",
    "decode_checkpoint",
    "decode_floor",
    "decode_snapshot",
    "encode_floor",
    "encode_snapshot",
    "encode_update",
]
