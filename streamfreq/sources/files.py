"""Files replayed as a stream: each file a topic with one partition, each line a record."""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence

import numpy as np

from streamfreq.clock import Clock
from streamfreq.config import FilesConfig
from streamfreq.errors import ConfigError, DataRefused
from streamfreq.records import NO_TIMESTAMP, RecordBatch, TopicPartition
from streamfreq.sources.base import AssignmentListener, StartAt
from streamfreq.sources.readers import STDIN, Advance, check_readable, open_lines

MAX_POLL_RECORDS = 10_000


def read_batches(
    path: str, advance: Advance | None = None, columns: Sequence[str] = ()
) -> Iterator[RecordBatch]:
    """The whole file as batches, offsets are line numbers from 0; `-` is stdin.

    Errors and arguments are those of `open_lines`.
    """
    offset = 0
    partition = TopicPartition(path, 0)
    for lines in open_lines(path, advance, columns):
        yield _batch(partition, offset, lines)
        offset += len(lines)


class FilesSource:
    """The port Source over files; see `streamfreq.sources.base` for the promises.

    Lines carry no timestamp. So a start by time begins at the first line, and "latest" behind the
    last. `columns` narrows what is read of .parquet files. After its last line a file is done: what
    is appended later is not read.
    """

    def __init__(self, config: FilesConfig, clock: Clock, columns: Sequence[str] = ()) -> None:
        if STDIN in config.paths:
            raise ConfigError("files.paths: stdin can't be replayed; use `streamfreq count -`")
        if len(set(config.paths)) != len(config.paths):
            raise ConfigError("files.paths: a file is named twice")
        self._rate = config.records_per_second
        self._clock = clock
        self._files = {TopicPartition(p, 0): _Replay(p, columns) for p in config.paths}
        self._listener: AssignmentListener | None = None
        self._waiting: set[TopicPartition] = set()
        self._untold: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._assigned = False
        self._turn = 0
        self._paced_from = 0.0
        self._paced = 0

    def open(self, listener: AssignmentListener) -> None:
        """Raises ConfigError when a file can't be read; the first poll assigns them."""
        for partition in self._files:
            check_readable(partition.topic)
        self._listener = listener
        self._waiting = set(self._files)
        self._paced_from = self._clock.monotonic()

    def poll(self, timeout_ms: int) -> list[RecordBatch]:
        """The next lines of one file, files in turn; nothing after `timeout_ms`.

        Raises DataRefused for a damaged file, or one that is shorter than where it should go on.
        """
        if self._listener is None:
            raise RuntimeError("the files source is not open")
        if not self._assigned:
            starts = self._listener.on_assigned(sorted(self._files))
            self._assigned = True
            for partition, start in starts.items():
                if partition in self._waiting:  # unless the listener has called seek
                    self.seek(partition, start)
        budget = self._budget(timeout_ms / 1000)
        ready = [p for p in self._files if p not in self._paused and p not in self._waiting]
        for step in range(len(ready) if budget else 0):
            partition = ready[(self._turn + step) % len(ready)]
            first, lines = self._files[partition].take(budget)
            begun = [RecordBatch.empty(partition, first)] if partition in self._untold else []
            if lines or begun:
                self._untold.discard(partition)
                self._turn += step + 1
                self._paced += len(lines)
                return [*begun, _batch(partition, first, lines)] if lines else begun
        if budget:
            time.sleep(timeout_ms / 1000)
        return []

    def seek(self, partition: TopicPartition, start: StartAt) -> None:
        """Read on from `start`; a file is read from its first line to get there."""
        replay = self._files[partition]
        if start.offset is not None:
            replay.seek(start.offset)
        elif start.policy == "latest":
            replay.seek_end()
        else:
            replay.seek(0)
        self._untold.add(partition)
        self._waiting.discard(partition)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Return nothing of these files until `resume`."""
        self._paused.update(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Undo `pause`."""
        self._paused.difference_update(partitions)

    def end_offsets(self) -> Mapping[TopicPartition, int] | None:
        """The number of lines of each file; None until every file has been read to its end."""
        if self._untold:
            return None
        ends = {partition: replay.end for partition, replay in self._files.items()}
        known = {partition: end for partition, end in ends.items() if end is not None}
        return known if self._assigned and len(known) == len(ends) else None

    def report_position(self, offsets: Mapping[TopicPartition, int]) -> None:
        """There is nobody to tell."""

    def close(self) -> None:
        """Close the files; the listener hears `on_revoked` once."""
        for replay in self._files.values():
            replay.close()
        if self._assigned and self._listener is not None:
            self._assigned = False
            self._listener.on_revoked(sorted(self._files))
        self._listener = None

    def _budget(self, timeout_seconds: float) -> int:
        """How many records the pace allows now; waits up to the timeout for the first."""
        if not self._rate:
            return MAX_POLL_RECORDS
        due = (self._clock.monotonic() - self._paced_from) * self._rate - self._paced
        if due < 1:
            time.sleep(min(timeout_seconds, (1 - due) / self._rate))
            due = (self._clock.monotonic() - self._paced_from) * self._rate - self._paced
        # What a pause or a slow reader left undone is not made up for in one burst.
        if due > max(self._rate, 1):
            self._paced += int(due - max(self._rate, 1))
            due = max(self._rate, 1)
        return min(MAX_POLL_RECORDS, max(0, int(due)))


class _Replay:
    """One file: the chunk of lines at hand, the line to come, and the end once it is known."""

    def __init__(self, path: str, columns: Sequence[str]) -> None:
        self._path = path
        self._columns = columns
        self._chunks: Generator[list[bytes]] | None = None
        self._lines: list[bytes] = []
        self._first = 0  # offset of _lines[0]
        self._next = 0
        self.end: int | None = None

    def take(self, limit: int) -> tuple[int, list[bytes]]:
        """The next offset, and up to `limit` lines from there; none at the end of the file."""
        while not self._first <= self._next < self._first + len(self._lines):
            if not self._load():
                return self._next, []
        offset = self._next
        lines = self._lines[offset - self._first : offset - self._first + limit]
        self._next += len(lines)
        return offset, lines

    def seek(self, offset: int) -> None:
        """Go on at line `offset`."""
        if offset < self._first:
            self.close()
        self._next = offset

    def seek_end(self) -> None:
        """Go on behind the last line."""
        self._next = 0
        while self._load():
            pass
        self._next = self._first

    def close(self) -> None:
        """Let go of the file; what follows is read from its first line again."""
        if self._chunks is not None:
            self._chunks.close()
        self._chunks = None
        self._lines, self._first = [], 0

    def _load(self) -> bool:
        """Read the next chunk; false at the end of the file."""
        if self._chunks is None:
            self._chunks = open_lines(self._path, columns=self._columns)
        self._first += len(self._lines)
        self._lines = next(self._chunks, [])
        if self._lines:
            return True
        self.end = self._first
        if self._next > self.end:
            raise DataRefused(
                f"{self._path} has {self.end} lines, but reading is to go on at line {self._next}: "
                "it is not the file that was counted; count it under another name (job = ...)"
            )
        return False


def _batch(partition: TopicPartition, offset: int, lines: list[bytes]) -> RecordBatch:
    count = len(lines)
    return RecordBatch(
        partition,
        np.arange(offset, offset + count, dtype=np.int64),
        np.full(count, NO_TIMESTAMP, np.int64),
        list[bytes | None](lines),
        offset + count,
    )
