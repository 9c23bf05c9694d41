"""Damaged, foreign, newer or inconsistent bytes are refused in one line, and in no other way."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from streamfreq.codec import (
    FORMAT,
    Checkpoint,
    decode_snapshot,
    encode_snapshot,
    encode_update,
)
from streamfreq.codec import decode_checkpoint as decode_parts
from streamfreq.codec.envelope import METADATA_KEY, seal
from streamfreq.errors import CheckpointRefused, DataRefused, SnapshotRefused
from tests.conformance.values import make_snapshot, make_update

Decode = Callable[[bytes, str], object]

CHECKPOINT = encode_update(make_update())
SNAPSHOT = encode_snapshot(make_snapshot())


def decode_checkpoint(data: bytes, what: str) -> Checkpoint:
    """A checkpoint of one part."""
    return decode_parts([data], what)


BOTH = pytest.mark.parametrize(
    ("data", "decode", "refused"),
    [
        pytest.param(CHECKPOINT, decode_checkpoint, CheckpointRefused, id="checkpoint"),
        pytest.param(SNAPSHOT, decode_snapshot, SnapshotRefused, id="snapshot"),
    ],
)


def reason(data: bytes, decode: Decode, refused: type[DataRefused]) -> str:
    """Why `data` is refused: one line that begins with what was read."""
    with pytest.raises(refused) as caught:
        decode(data, "the thing")
    line = str(caught.value)
    assert line.startswith("the thing: ")
    assert "\n" not in line
    assert len(line) < 400
    return line


def metadata_of(data: bytes) -> dict[str, Any]:
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    metadata: dict[str, Any] = json.loads(header["__metadata__"][METADATA_KEY])
    return metadata


def resealed(data: bytes, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> bytes:
    """Sound bytes with right checksums, whose content somebody changed."""
    tensors, metadata = load(data), metadata_of(data)
    for name in ("format", "sha256", "metadata_sha256"):
        del metadata[name]
    change(tensors, metadata)
    return seal(tensors, metadata)


@BOTH
def test_cut_off(data: bytes, decode: Decode, refused: type[DataRefused]) -> None:
    for length in [*range(0, len(data), 64), 1, 7, 8, 9, len(data) - 1]:
        reason(data[:length], decode, refused)


@BOTH
def test_longer(data: bytes, decode: Decode, refused: type[DataRefused]) -> None:
    for more in (b"\0", data):
        reason(data + more, decode, refused)
        reason(more + data, decode, refused)


@BOTH
def test_every_byte_of_the_header_and_many_of_the_rest(
    data: bytes, decode: Decode, refused: type[DataRefused]
) -> None:
    header = 8 + int.from_bytes(data[:8], "little")
    for position in [*range(header), *range(header, len(data), 5)]:
        damaged = bytearray(data)
        damaged[position] ^= 1 << (position % 8)
        reason(bytes(damaged), decode, refused)


@BOTH
@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_bit(
    data: bytes, decode: Decode, refused: type[DataRefused], some: st.DataObject
) -> None:
    damaged = bytearray(data)
    damaged[some.draw(st.integers(0, len(data) - 1))] ^= 1 << some.draw(st.integers(0, 7))
    reason(bytes(damaged), decode, refused)


@BOTH
@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_bytes(data: bytes, decode: Decode, refused: type[DataRefused], junk: bytes) -> None:
    reason(junk, decode, refused)
    reason(len(junk).to_bytes(8, "little") + junk, decode, refused)


@BOTH
@pytest.mark.parametrize(
    "header",
    [
        "[]",
        "null",
        '{"__metadata__": []}',
        '{"__metadata__": {"streamfreq": 5}}',
        '{"__metadata__": {"streamfreq": "[]"}}',
        '{"__metadata__": {"streamfreq": "{}"}}',
        '{"__metadata__": {"streamfreq": "{\\"format\\": \\"1\\"}"}}',
        '{"__metadata__": {"streamfreq": "{\\"format\\": null}"}}',
        '{"__metadata__": {"streamfreq": "NaN"}}',
        "[" * 200_000,
        '{"counts": {"dtype": "F64", "shape": [1000000000000], "data_offsets": [0, 8]}}',
    ],
)
def test_headers_that_are_no_such_thing(
    data: bytes, decode: Decode, refused: type[DataRefused], header: str
) -> None:
    text = header.encode()
    reason(len(text).to_bytes(8, "little") + text, decode, refused)


@BOTH
def test_foreign_files(data: bytes, decode: Decode, refused: type[DataRefused]) -> None:
    tensors = {"counts": np.zeros((2, 50))}
    assert "not a streamfreq file" in reason(save(tensors), decode, refused)
    assert "not a streamfreq file" in reason(save(tensors, {"format": "pt"}), decode, refused)
    reason(b"\x80\x04\x95 pickle", decode, refused)


@BOTH
def test_a_newer_format(data: bytes, decode: Decode, refused: type[DataRefused]) -> None:
    metadata = metadata_of(data)
    metadata["format"] = FORMAT + 1
    newer = save(load(data), {METADATA_KEY: json.dumps(metadata)})
    assert "newer than 1" in reason(newer, decode, refused)
    assert "update streamfreq" in reason(newer, decode, refused)


@BOTH
def test_changed_metadata(data: bytes, decode: Decode, refused: type[DataRefused]) -> None:
    """A wrong offset would count records twice; the tensors alone can't tell."""
    for change in ({"version": 2}, {"created_at_ms": 0}, {"gaps": []}, {"extra": 1}):
        metadata = {**metadata_of(data), **change}
        changed = save(load(data), {METADATA_KEY: json.dumps(metadata)})
        assert "wrong checksum" in reason(changed, decode, refused)
    bare = metadata_of(data)
    del bare["metadata_sha256"]
    reason(save(load(data), {METADATA_KEY: json.dumps(bare)}), decode, refused)


@BOTH
def test_changed_tensors(data: bytes, decode: Decode, refused: type[DataRefused]) -> None:
    tensors = load(data)
    text = json.dumps(metadata_of(data))
    for name, tensor in tensors.items():
        for other in (tensor * 2 + 1, tensor.astype(np.float32), tensor.reshape(1, -1)):
            if (other.dtype, other.shape, other.tobytes()) == (
                *(tensor.dtype, tensor.shape),
                tensor.tobytes(),
            ):
                continue
            changed = save({**tensors, name: other}, {METADATA_KEY: text})
            assert "wrong checksum" in reason(changed, decode, refused)
        fewer = {key: value for key, value in tensors.items() if key != name}
        assert "wrong checksum" in reason(save(fewer, {METADATA_KEY: text}), decode, refused)


def test_one_kind_is_not_the_other() -> None:
    assert "not a checkpoint but a snapshot" in reason(
        SNAPSHOT, decode_checkpoint, CheckpointRefused
    )
    assert "not a snapshot but a checkpoint" in reason(CHECKPOINT, decode_snapshot, SnapshotRefused)


@BOTH
def test_any_field_that_is_missing(data: bytes, decode: Decode, refused: type[DataRefused]) -> None:
    optional = {"labels", "schemes", "streamfreq_version", "epoch"} if data is SNAPSHOT else set()
    for name in metadata_of(data).keys() - {"format", "sha256", "metadata_sha256"} - optional:
        reason(resealed(data, lambda _, metadata: metadata.pop(name)), decode, refused)  # noqa: B023
    for name in load(data).keys() - {"documents", "weights.default"}:
        reason(resealed(data, lambda tensors, _: tensors.pop(name)), decode, refused)  # noqa: B023


@BOTH
@pytest.mark.parametrize("value", [None, "text", [1], {"a": 1}, -1, 1e300, [["x"]]])
def test_any_field_of_another_type_raises_nothing_else(
    data: bytes, decode: Decode, refused: type[DataRefused], value: object
) -> None:
    lines = []
    for name in metadata_of(data).keys() - {"format", "sha256", "metadata_sha256"}:
        changed = resealed(data, lambda _, metadata: metadata.update({name: value}))  # noqa: B023
        try:
            decode(changed, "the thing")
        except refused as error:
            lines.append(str(error))
    assert lines
    assert not any("\n" in line for line in lines)


@BOTH
def test_shapes_that_do_not_fit(data: bytes, decode: Decode, refused: type[DataRefused]) -> None:
    for name, tensor in load(data).items():
        for other in (tensor[..., :-1], tensor[None], tensor.reshape(-1)):
            if other.shape != tensor.shape:
                changed = resealed(data, lambda tensors, _: tensors.update({name: other}))  # noqa: B023
                reason(changed, decode, refused)


def test_rows_outside_the_vocabulary() -> None:
    for row in (-1, 50):

        def move(tensors: dict[str, Any], _: object) -> None:
            tensors["rows"][0] = row  # noqa: B023

        reason(resealed(CHECKPOINT, move), decode_checkpoint, CheckpointRefused)


def test_nothing_but_numbers_is_written() -> None:
    snapshot = make_snapshot(tokens_H=np.array([np.nan, 1.0]))
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_snapshot(snapshot)
