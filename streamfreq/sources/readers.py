"""Lines of files as lists of bytes: plain, .gz, .zst, and the rows of .parquet as JSON objects.

A chunk of lines is about a megabyte, so memory does not depend on the size of the file. Every line
counts, empty ones too, so that a line's number stays its offset.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from streamfreq.errors import ConfigError, DataRefused

Advance = Callable[[int], None]
"""Told how many more bytes of the file, as it lies on the disk, have been read."""

STDIN = "-"
_PLAIN_CHUNK = 1 << 20
_COMPRESSED_CHUNK = 1 << 18
_PARQUET_ROWS = 4_096
_GZIP_WINDOW = 31
_BOM = b"\xef\xbb\xbf"


def open_lines(
    path: str, advance: Advance | None = None, columns: Sequence[str] = ()
) -> Generator[list[bytes]]:
    r"""Chunks of the lines of `path` (`-`: stdin), without their \n or \r\n.

    The ending says what the file is. Of .parquet only `columns` are read (none: all). Raises
    ConfigError for a file that can't be opened, DataRefused for one that is damaged.
    """
    told = advance or _nobody
    try:
        if path.endswith(".parquet"):
            yield from _rows(path, told, columns)
            return
        with _binary(path) as file:
            yield from _split(_bytes(path, file, told))
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror or error}") from error


def check_readable(path: str) -> None:
    """Raises ConfigError when `path` is no file, or its extra is not installed."""
    if not Path(path).exists():
        raise ConfigError(f"{path}: there is no such file")
    if Path(path).is_dir():
        raise ConfigError(f"{path} is a folder: name its files")
    if path.endswith(".parquet"):
        _parquet()


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def _nobody(count: int) -> None:
    """Progress that nobody watches."""


def _binary(path: str) -> BinaryIO:
    if path == STDIN:
        if sys.stdin is None:
            raise ConfigError("-: there is no standard input to read; name a file")
        # A duplicate, so that closing it leaves the process its stdin.
        return open(sys.stdin.fileno(), "rb", closefd=False)
    return open(path, "rb")


def _bytes(path: str, file: BinaryIO, advance: Advance) -> Iterator[bytes]:
    if path.endswith(".gz"):
        return _decompressed(path, _chunks(file, _COMPRESSED_CHUNK, advance), _gzip)
    if path.endswith(".zst"):
        return _decompressed(path, _chunks(file, _COMPRESSED_CHUNK, advance), _zstandard)
    return _chunks(file, _PLAIN_CHUNK, advance)


def _chunks(file: BinaryIO, size: int, advance: Advance) -> Iterator[bytes]:
    while chunk := file.read(size):
        advance(len(chunk))
        yield chunk


def _gzip() -> _Decompressor:
    return zlib.decompressobj(_GZIP_WINDOW)


def _zstandard() -> _Decompressor:
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


def _decompressed(
    path: str, chunks: Iterator[bytes], begin: Callable[[], _Decompressor]
) -> Iterator[bytes]:
    """All members (frames) of the file, one after the other; a cut or damaged one is refused."""
    import zstandard

    member: _Decompressor | None = None
    for chunk in chunks:
        rest = chunk
        while rest:
            if member is None:
                rest = rest.lstrip(b"\0") if begin is _gzip else rest  # padding between members
                if not rest:
                    break
                member = begin()
            try:
                plain = member.decompress(rest)
            except (zlib.error, zstandard.ZstdError) as error:
                raise DataRefused(f"{path} is damaged: {error}") from error
            if plain:
                yield plain
            rest = b""
            if member.eof:
                rest, member = member.unused_data, None
    if member is not None:
        raise DataRefused(f"{path} is cut off: its compressed data end in the middle")


def _split(chunks: Iterator[bytes]) -> Iterator[list[bytes]]:
    started: list[bytes] = []  # pieces of the line that the chunks so far have not ended
    first = True
    for chunk in chunks:
        if first:
            chunk, first = chunk.removeprefix(_BOM), False
        end = chunk.rfind(b"\n")
        if end < 0:
            started.append(chunk)
            continue
        lines = chunk[:end].split(b"\n")
        if started:
            started.append(lines[0])
            lines[0] = b"".join(started)
        started = [chunk[end + 1 :]] if end + 1 < len(chunk) else []
        yield _without_returns(lines)
    if last := b"".join(started):
        yield _without_returns([last])


def _without_returns(lines: list[bytes]) -> list[bytes]:
    if any(line.endswith(b"\r") for line in lines):
        return [line.removesuffix(b"\r") for line in lines]
    return lines


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(
            "a .parquet file needs the extra `parquet`: pip install 'streamfreq[parquet]'"
        ) from None
    return pyarrow.parquet


def _rows(path: str, advance: Advance, columns: Sequence[str]) -> Iterator[list[bytes]]:
    parquet = _parquet()
    import pyarrow

    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            for name in columns:
                if name not in names:
                    raise ConfigError(f"{path} has no column {name!r}; it has {', '.join(names)}")
            groups = file.metadata.num_row_groups
            for group in range(groups):
                for batch in file.iter_batches(_PARQUET_ROWS, [group], list(columns) or None):
                    yield [_json(row) for row in batch.to_pylist()]
                advance(file.metadata.row_group(group).total_byte_size)
    except pyarrow.ArrowInvalid as error:
        raise DataRefused(f"{path} is no parquet file or is damaged: {error}") from error


def _json(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, default=_plain).encode()


def _plain(value: object) -> str:
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value)
