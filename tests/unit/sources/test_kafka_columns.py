"""Columns are what the client itself would have read, record by record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords
from kafka.structs import TopicPartition

from streamfreq.sources.kafka.columns import _PartitionColumns, decode, join_columns

NEWS = TopicPartition("news", 0)
CODECS = {"none": 0, "gzip": 1, "zstd": 4}
BINARY = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=4), BINARY), max_size=2)
RECORDS = st.lists(
    st.tuples(st.integers(0, 2**40), BINARY, BINARY, HEADERS, st.integers(1, 20_000)),
    min_size=1,
    max_size=200,
)
"""Milliseconds after the first, key, value, headers, how far the offset moves."""


def batch_of(records: Sequence[Any], base: int = 0, codec: str = "none") -> bytes:
    builder = DefaultRecordBatchBuilder(2, CODECS[codec], False, -1, -1, -1, 1 << 30)
    offset = 0
    for row, (ms, key, value, headers, step) in enumerate(records):
        assert builder.append(offset, 1_700_000_000_000 + (ms if row else 0), key, value, headers)
        offset += step
    data = bytearray(builder.build())
    data[:8] = base.to_bytes(8, "big")  # set by the broker, and not part of the checksum
    return bytes(data)


def simple(count: int, base: int = 0) -> bytes:
    records = [(row, None, f"v{base + row}".encode(), [], 1) for row in range(count)]
    return batch_of(records, base)


@given(RECORDS, st.integers(0, 2**50), st.sampled_from(sorted(CODECS)))
@settings(deadline=None)
def test_a_batch_reads_as_the_client_reads_it(records: Any, base: int, codec: str) -> None:
    data = batch_of(records, base, codec)
    columns = decode(DefaultRecordBatch(data))
    theirs = [(item.offset, item.timestamp, item.value) for item in DefaultRecordBatch(data)]
    ours = zip(
        columns.offsets.tolist(), columns.timestamps_ms.tolist(), columns.values, strict=True
    )
    assert list(ours) == theirs


@given(RECORDS, st.data())
@settings(deadline=None, max_examples=400)
def test_a_damaged_batch_is_refused_or_read_as_the_client_reads_it(records: Any, data: Any) -> None:
    whole = batch_of(records)
    place = data.draw(st.integers(DefaultRecordBatch.HEADER_STRUCT.size, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[place] ^= data.draw(st.integers(1, 255))
    try:
        theirs = [(item.offset, item.value) for item in DefaultRecordBatch(damaged)]
    except (CorruptRecordError, UnicodeDecodeError):
        return  # also headers, which are not looked into here; the checksum covers them
    columns = decode(DefaultRecordBatch(damaged))
    assert list(zip(columns.offsets.tolist(), columns.values, strict=True)) == theirs


@pytest.mark.parametrize("cut", [1, 5, -1])
def test_a_cut_batch_is_one_error(cut: int) -> None:
    whole = simple(3)
    data = whole[:-cut] if cut > 0 else whole + b"\0"
    with pytest.raises(CorruptRecordError, match=r"can't be read|bytes are left"):
        decode(DefaultRecordBatch(data))


def test_log_append_time_is_every_records_time() -> None:
    data = bytearray(simple(3))
    data[DefaultRecordBatch.ATTRIBUTES_OFFSET + 1] |= DefaultRecordBatch.TIMESTAMP_TYPE_MASK
    columns = decode(DefaultRecordBatch(data))
    assert columns.timestamps_ms.tolist() == [1_700_000_000_002] * 3


def taken(kind: Any, data: bytes, fetch_offset: int, limit: int) -> list[tuple[Any, ...]]:
    """All that the client's book-keeping gives, with the position after each take."""
    part = kind(fetch_offset, NEWS, MemoryRecords(data))
    found = []
    while part:
        items = part.take(limit)
        assert len(items) <= limit
        if items:
            columns = join_columns(list(iter(items)))
            found += zip(columns.offsets.tolist(), columns.values, strict=True)
        found.append((part.next_fetch_offset,))
    return found


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.integers(0, 30),
    st.integers(1, 12),
)
@settings(deadline=None)
def test_positions_and_limits_are_the_clients(sizes: list[int], first: int, limit: int) -> None:
    data, base = b"", 0
    for size in sizes:
        data += simple(size, base)
        base += size + 2  # a hole, as compaction and transactions leave
    assert taken(_PartitionColumns, data, first, limit) == taken(
        Fetcher.PartitionRecords, data, first, limit
    )


def test_an_error_waits_for_what_is_before_it() -> None:
    bad = bytearray(simple(2, 3))
    bad[-1] ^= 1
    part = _PartitionColumns(0, NEWS, MemoryRecords(simple(3) + bytes(bad)))
    assert len(part.take(10)) == 3
    assert part.next_fetch_offset == 3
    with pytest.raises(CorruptRecordError):
        part.take(10)


def test_older_formats_come_as_single_records() -> None:
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    for row in range(3):
        builder.append(row, 1_700_000_000_000 + row, None, b"old%d" % row)
    part = _PartitionColumns(1, NEWS, MemoryRecords(bytes(builder.build())))
    columns = join_columns(list(iter(part.take(10))))
    assert columns.values == [b"old1", b"old2"]
    assert columns.offsets.tolist() == [1, 2]
    assert columns.timestamps_ms.tolist() == [1_700_000_000_001, 1_700_000_000_002]
