"""Checkpoints and snapshots as values and as bytes (safetensors; never pickle)."""

from streamfreq.codec.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from streamfreq.codec.envelope import FORMAT
from streamfreq.codec.snapshot import Snapshot, decode_snapshot, encode_snapshot
from streamfreq.codec.state import DecayedState, Gap

__all__ = [
    "FORMAT",
    "Checkpoint",
    "DecayedState",
    "Gap",
    "Snapshot",
    "decode_checkpoint",
    "decode_snapshot",
    "encode_checkpoint",
    "encode_snapshot",
]
