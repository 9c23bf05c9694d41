"""Safetensors bytes with one JSON object of metadata and a checksum over the tensors.

The metadata stands under the safetensors metadata key `streamfreq`. Its `sha256` covers every
tensor's name, type, shape and bytes, in name order, so that a reader can tell damage from change.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from streamfreq.errors import DataRefused

FORMAT = 1
"""The newest format that this code reads and the one that it writes."""

METADATA_KEY = "streamfreq"
_HEADER_LENGTH_BYTES = 8

Tensors = dict[str, np.ndarray[Any, np.dtype[Any]]]


def digest(tensors: Tensors) -> str:
    """SHA-256 over the tensors, as hex."""
    sha = hashlib.sha256()
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        sha.update(json.dumps([name, array.dtype.str, list(array.shape)]).encode())
        sha.update(array.data.cast("B") if array.size else b"")
    return sha.hexdigest()


def seal(tensors: Tensors, metadata: dict[str, Any]) -> bytes:
    """The bytes of `tensors` with `metadata`, to which `format` and `sha256` are added."""
    full = {"format": FORMAT, **metadata, "sha256": digest(tensors)}
    return save(tensors, metadata={METADATA_KEY: json.dumps(full, allow_nan=False)})


def unseal(data: bytes, what: str, refused: type[DataRefused]) -> tuple[Tensors, dict[str, Any]]:
    """The tensors and the metadata of `seal`ed bytes.

    Raises `refused` with one line that begins with `what` when the bytes are truncated or
    damaged, are no streamfreq file, or have a newer format.
    """
    try:
        metadata = _read_metadata(data)
        if metadata is None:
            raise refused(f"{what}: not a streamfreq file (no '{METADATA_KEY}' metadata)")
        if metadata.get("format", 0) > FORMAT:
            raise refused(
                f"{what}: format {metadata['format']} is newer than {FORMAT}, "
                "the newest this version reads; update streamfreq"
            )
        tensors = load(data)
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise refused(f"{what}: truncated or damaged ({error})") from None
    if digest(tensors) != metadata.get("sha256"):
        raise refused(f"{what}: wrong checksum, the bytes are damaged")
    return tensors, metadata


def _read_metadata(data: bytes) -> dict[str, Any] | None:
    if len(data) < _HEADER_LENGTH_BYTES:
        raise ValueError("shorter than a header")
    length = int.from_bytes(data[:_HEADER_LENGTH_BYTES], "little")
    if length > len(data) - _HEADER_LENGTH_BYTES:
        raise ValueError("the header is cut off")
    header = json.loads(data[_HEADER_LENGTH_BYTES : _HEADER_LENGTH_BYTES + length])
    text = header.get("__metadata__", {}).get(METADATA_KEY)
    if text is None:
        return None
    metadata = json.loads(text)
    return metadata if isinstance(metadata, dict) else None
