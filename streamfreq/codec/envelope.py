"""Safetensors bytes with one JSON object of metadata and checksums over both.

The metadata stands under the safetensors metadata key `streamfreq`. Its `sha256` covers every
tensor's name, type, shape and bytes, in name order: equal tensors have equal sums. Its last field,
`metadata_sha256`, covers the JSON text of all other fields, since a wrong offset is as bad as a
wrong count. Equal input gives equal bytes.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from streamfreq.codec.state import Array
from streamfreq.errors import DataRefused

FORMAT = 1
"""The newest format that this code reads and the one that it writes."""

METADATA_KEY = "streamfreq"
_METADATA_SUM = "metadata_sha256"
_HEADER_LENGTH_BYTES = 8
_LONGEST_REASON = 200

Tensors = dict[str, Array]


def digest(tensors: Tensors) -> str:
    """SHA-256 over the tensors, as hex."""
    sha = hashlib.sha256()
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        sha.update(json.dumps([name, array.dtype.str, list(array.shape)]).encode())
        sha.update(array.data.cast("B") if array.size else b"")
    return sha.hexdigest()


def seal(tensors: Tensors, metadata: dict[str, Any]) -> bytes:
    """The bytes of `tensors` with `metadata`, to which `format` and the checksums are added."""
    # safetensors copies memory as it lies, so the rows of a strided view must be gathered first.
    dense = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    full = {"format": FORMAT, **metadata, "sha256": digest(dense)}
    full[_METADATA_SUM] = _text_digest(full)
    return save(dense, metadata={METADATA_KEY: _to_text(full)})


def unseal(
    data: bytes, kind: str, what: str, refused: type[DataRefused]
) -> tuple[Tensors, dict[str, Any]]:
    """The tensors and the metadata of `seal`ed bytes of that `kind`.

    Raises `refused` with one line that begins with `what` when the bytes are truncated or
    damaged, are no streamfreq file or of another kind, or have a newer format.
    """
    try:
        metadata, intact = _read_metadata(data)
        if metadata is None:
            raise refused(f"{what}: not a streamfreq file (no '{METADATA_KEY}' metadata)")
        if not isinstance(metadata.get("format"), int):
            raise refused(f"{what}: not a streamfreq file (its format is no number)")
        if metadata["format"] > FORMAT:
            raise refused(
                f"{what}: format {metadata['format']} is newer than {FORMAT}, "
                "the newest this version reads; update streamfreq"
            )
        tensors = load(data) if intact else {}
    # Any of these, from bytes that somebody else wrote, means that they are not what we write.
    except (
        SafetensorError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
        MemoryError,
    ) as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raise refused(f"{what}: truncated or damaged ({reason})") from None
    if not intact or digest(tensors) != metadata.get("sha256"):
        raise refused(f"{what}: wrong checksum, the bytes are damaged")
    if metadata.get("kind") != kind:
        raise refused(f"{what}: not a {kind} but a {metadata.get('kind')}")
    return tensors, metadata


def _read_metadata(data: bytes) -> tuple[dict[str, Any] | None, bool]:
    """The metadata, if there is any, and whether its text is exactly what was written."""
    if len(data) < _HEADER_LENGTH_BYTES:
        raise ValueError("shorter than a header")
    length = int.from_bytes(data[:_HEADER_LENGTH_BYTES], "little")
    if length > len(data) - _HEADER_LENGTH_BYTES:
        raise ValueError("the header is cut off")
    header = json.loads(data[_HEADER_LENGTH_BYTES : _HEADER_LENGTH_BYTES + length])
    text = header.get("__metadata__", {}).get(METADATA_KEY)
    if text is None:
        return None, False
    metadata = json.loads(text)
    if not isinstance(metadata, dict):
        return None, False
    claimed = metadata.pop(_METADATA_SUM, None)
    actual = _text_digest(metadata)
    return metadata, claimed == actual and text == _to_text({**metadata, _METADATA_SUM: claimed})


def _to_text(metadata: dict[str, Any]) -> str:
    return json.dumps(metadata, allow_nan=False)


def _text_digest(metadata: dict[str, Any]) -> str:
    return hashlib.sha256(_to_text(metadata).encode()).hexdigest()
