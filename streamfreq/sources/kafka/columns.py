"""Reads the log's record batches as columns, without an object for each record.

Client 3.0.12 makes two objects and some thirteen fields of every record, 3 to 8 us of Python that
nothing else can run beside. Counting needs offsets, timestamps and values. The client still does
all else: fetching, checksums, decompression, aborted transactions, control batches, positions.
What it takes for one record is here a whole record batch, with `Columns` for a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.util import decode_varint

from streamfreq.records import Int64Array

_NULL = 1
"""The length -1, of a key that is not there, as a varint."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Records of one record batch: offsets and timestamps in ms, int64 (R,), and R values."""

    offsets: Int64Array
    timestamps_ms: Int64Array
    values: list[bytes | None]

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, first: int, last: int) -> Columns:
        """Records `first` to `last` (exclusive)."""
        return Columns(
            self.offsets[first:last], self.timestamps_ms[first:last], self.values[first:last]
        )


def read_columns(consumer: Any) -> None:
    """Make `consumer.poll` return `Columns` as the values of its records.

    Batches of the formats before Kafka 0.11 come as single records still.
    """
    consumer._fetcher.PartitionRecords = _PartitionColumns


def join_columns(records: list[Any]) -> Columns:
    """What a poll returned for one partition, in one piece."""
    parts = [_columns_of(record) for record in records]
    if len(parts) == 1:
        return parts[0]
    return Columns(
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.timestamps_ms for part in parts]),
        list(chain.from_iterable(part.values for part in parts)),
    )


def _columns_of(record: Any) -> Columns:
    if isinstance(record.value, Columns):
        return record.value
    offsets, times_ms = (np.array([item], np.int64) for item in (record.offset, record.timestamp))
    return Columns(offsets, times_ms, [record.value])


class _Taken(list[Any]):
    """Polled items; its length is the number of records, which is what the client limits."""

    def __init__(self) -> None:
        super().__init__()
        self.records = 0

    def __len__(self) -> int:
        return self.records


class _PartitionColumns(Fetcher.PartitionRecords):  # type: ignore[misc]
    """The client's book-keeping over one partition's answer, fed with columns."""

    def __init__(self, fetch_offset: int, tp: Any, records: Any, *args: Any, **named: Any) -> None:
        super().__init__(fetch_offset, tp, _Batches(records, fetch_offset), *args, **named)
        self._rest: Any = None

    def take(self, n: int | None = None) -> list[Any]:
        """Up to `n` records; an error waits until all before it are taken."""
        self._maybe_raise_next_inline_exception()
        taken = _Taken()
        try:
            for item in self._items():
                size = len(item.value) if isinstance(item.value, Columns) else 1
                room = size if n is None else n - taken.records
                if size > room:
                    self._rest = item._replace(value=item.value.slice(room, size))
                    item = item._replace(value=item.value.slice(0, room))
                    self.next_fetch_offset = int(item.value.offsets[-1]) + 1
                taken.append(item)
                taken.records += min(size, room)
                if taken.records == n:
                    break
        except Exception as error:
            if not taken:
                raise
            self._next_inline_exception = error
        return taken

    def _items(self) -> Iterator[Any]:
        if self._rest is not None:
            rest, self._rest = self._rest, None
            self.next_fetch_offset = rest.offset + 1
            yield rest
        yield from self.record_iterator


class _Batches:
    """The client's MemoryRecords, whose batches are iterated over as columns."""

    def __init__(self, records: Any, fetch_offset: int) -> None:
        self._records = records
        self._fetch_offset = fetch_offset

    def next_batch(self) -> Any:
        """The next batch; the control batches, which the client looks into, as they are."""
        batch = self._records.next_batch()
        if isinstance(batch, DefaultRecordBatch) and not batch.is_control_batch:
            return _ColumnBatch(batch, self._fetch_offset)
        return batch


class _ColumnBatch:
    """A record batch with a single item to iterate over: its records from an offset on."""

    def __init__(self, batch: DefaultRecordBatch, first_offset: int) -> None:
        self._batch = batch
        self._first_offset = first_offset

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[Any]:
        columns = decode(self._batch)
        if not len(columns):
            return
        last_offset = int(columns.offsets[-1])
        first = int(np.searchsorted(columns.offsets, self._first_offset))
        columns = columns.slice(first, len(columns)) if first else columns
        yield SimpleNamespace(
            offset=last_offset,
            timestamp=int(self._batch.max_timestamp),
            timestamp_type=self._batch.timestamp_type,
            key=None,
            value=columns,
            headers=[],
            checksum=None,
            size_in_bytes=self._batch.size_in_bytes,
            validate_crc=_checked_by_batch,
        )


def _checked_by_batch() -> bool:
    return True


def decode(batch: DefaultRecordBatch) -> Columns:
    """All records of a batch of format 2; raises CorruptRecordError."""
    batch._maybe_uncompress()
    count = batch.records_count
    try:
        deltas, times_ms, values = _fields(bytes(batch._buffer), batch._pos, count)
    except (IndexError, ValueError) as error:
        raise CorruptRecordError(f"a record batch can't be read: {error!r}") from None
    offsets = np.fromiter(deltas, np.int64, count) + batch.base_offset
    if batch.timestamp_type == batch.LOG_APPEND_TIME:
        return Columns(offsets, np.full(count, batch.max_timestamp, np.int64), values)
    return Columns(offsets, np.fromiter(times_ms, np.int64, count) + batch.first_timestamp, values)


def _fields(  # noqa: C901, PLR0915
    data: bytes, at: int, count: int
) -> tuple[list[int], list[int], list[bytes | None]]:
    """Offset deltas, timestamp deltas and values of `count` records that fill `data` to its end.

    A record: length, attributes (a byte), timestamp delta, offset delta, key length, key, value
    length, value, headers. Each number is a zigzag varint, nearly always of one or two bytes:
    those are decoded in place, for a call costs as much as all the rest of a record.
    """
    deltas: list[int] = []
    times_ms: list[int] = []
    values: list[bytes | None] = []
    for _ in range(count):
        if (byte := data[at]) < 128:
            size, at = byte >> 1, at + 1
        else:
            size, at = decode_varint(data, at)
        end = at + size
        at += 1
        if (byte := data[at]) < 128:
            number, at = byte, at + 1
        elif (second := data[at + 1]) < 128:
            number, at = byte + (second << 7) - 128, at + 2
        else:
            number, at = decode_varint(data, at)
            number = number << 1 if number >= 0 else -number * 2 - 1
        times_ms.append((number >> 1) ^ -(number & 1))
        if (byte := data[at]) < 128:
            deltas.append((byte >> 1) ^ -(byte & 1))
            at += 1
        elif (second := data[at + 1]) < 128:
            number = byte + (second << 7) - 128
            deltas.append((number >> 1) ^ -(number & 1))
            at += 2
        else:
            number, at = decode_varint(data, at)
            deltas.append(number)
        if data[at] == _NULL:
            at += 1
        else:
            size, at = decode_varint(data, at)
            at += max(size, 0)
        if (byte := data[at]) < 128:
            size, at = (byte >> 1) ^ -(byte & 1), at + 1
        elif (second := data[at + 1]) < 128:
            number = byte + (second << 7) - 128
            size, at = (number >> 1) ^ -(number & 1), at + 2
        else:
            size, at = decode_varint(data, at)
        values.append(data[at : at + size] if size >= 0 else None)
        at += max(size, 0)
        # Headers are not needed, but what is left has to have room for their number.
        if not at < end <= len(data):
            raise ValueError("a record's length is not that of its fields")
        at = end
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes are left behind the last record")
    return deltas, times_ms, values
