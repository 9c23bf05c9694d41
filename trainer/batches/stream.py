"""The stream as blocks, read ahead by a thread of its own into a bounded queue."""

from __future__ import annotations

import logging
import queue
import random
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from streamfreq.clock import Clock
from streamfreq.errors import ServiceUnavailable, StreamfreqError
from streamfreq.records import RecordBatch, TopicPartition
from streamfreq.sources import Source
from streamfreq.sources.base import StartAt
from trainer.batches.documents import Documents, split
from trainer.batches.packer import Packed, Packer
from trainer.batches.positions import Positions
from trainer.batches.silence import Silence
from trainer.blocks import Block, StreamState
from trainer.config import DataConfig

log = logging.getLogger("trainer.batches")

POLL_TIMEOUT_MS = 100
FULL_POLL_TIMEOUT_MS = 10
"""While the queue is full: keeps us in the group, and no reader waits long for it."""
CHUNK_BYTES = 1_000_000
"""So much text is tokenized at once."""
LOOK_SECONDS = 1.0
"""How often the ends of the partitions are asked for."""

LONGEST_BACKOFF_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Read:
    """A block, and where reading goes on behind it."""

    block: Block
    state: StreamState


@dataclass(frozen=True, slots=True)
class StreamStats:
    """How reading stands. lag_records: not read yet; None while nobody can say."""

    records: int = 0
    tokens: int = 0
    bad: Mapping[str, int] = field(default_factory=dict)
    queued_blocks: int = 0
    lag_records: int | None = None
    gap_records: int = 0


class BlockStream:
    """Blocks of a source, in order; `open`, then `get` until `ended`.

    Reading goes on in a thread up to `data.queue_blocks` ahead; above that the partitions are
    paused, and polled all the same, so that the consumer group keeps us. What makes reading
    impossible comes out of `get`, behind the blocks that were read before it. While Kafka is
    away reading waits and tries again. until_end: end behind the last record there is now; else
    it never ends.
    """

    def __init__(
        self,
        source: Source,
        documents: Documents,
        packer: Packer,
        data: DataConfig,
        start: StartAt,
        clock: Clock,
        *,
        until_end: bool = False,
    ) -> None:
        self._source = source
        self._documents = documents
        self._packer = packer
        self._data = data
        self._clock = clock
        self._until_end = until_end
        self._positions = Positions(packer, start)
        self._queue: queue.SimpleQueue[Read | None] = queue.SimpleQueue()
        self._finished = False
        self._marked = False
        self._room = threading.Event()
        self._pending: deque[RecordBatch] = deque()
        self._packing: Iterator[Packed] | None = None
        self._stopping = threading.Event()
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._hungry_since: float | None = None
        self._lag: int | None = None
        self._look_due = 0.0
        self._paused: set[TopicPartition] = set()
        self._silence = Silence(0.0, 0)
        self._stats = StreamStats()
        self._thread = threading.Thread(target=self._run, name="stream", daemon=True)

    def open(self, state: StreamState) -> None:
        """Begin to read behind `state`."""
        self._positions.begin(state)
        self._stats = StreamStats(state.records, state.tokens)
        self._packing = self._packer.resume(state)
        self._silence = Silence(self._clock.monotonic(), state.records)
        self._thread.start()

    def get(self, timeout_seconds: float) -> Read | None:
        """The next block; None when none has come in that time, or reading has ended.

        Raises what made reading impossible, a StreamfreqError when the user can mend it.
        """
        if self._finished:
            self._raise_error()
            return None
        if self._queue.empty() and self._hungry_since is None:
            self._hungry_since = self._clock.monotonic()
        try:
            read = self._queue.get(timeout=timeout_seconds)
        except queue.Empty:
            return None
        self._hungry_since = None
        self._room.set()
        if read is None:
            self._finished = True
            self._raise_error()
        return read

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error from None

    @property
    def ended(self) -> bool:
        """Whether every block there will ever be was got."""
        if self._error is not None or not self._marked:
            return False
        # The mark of the end is in the queue or was got, so one item left is the mark.
        return self._finished or self._queue.qsize() == 1

    def trained(self, state: StreamState) -> None:
        """Training is behind `state`: for lag tools, the group is told now and then."""
        self._positions.trained = state.offsets

    def stats(self) -> StreamStats:
        """How reading stands; from any thread."""
        return self._stats

    def close(self) -> None:
        """Stop reading and leave the group."""
        self._stopping.set()
        self._room.set()
        if self._thread.is_alive():
            self._thread.join(15)

    # The thread

    def _run(self) -> None:
        try:
            self._open_source()
            failures = 0
            while not self._stopping.is_set() and not self._done.is_set():
                try:
                    self._turn()
                except ServiceUnavailable as error:
                    failures += 1
                    self._away(error, failures)
                    continue
                if failures:
                    log.info("reading again")
                    failures = 0
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()
            self._queue.put(None)
            self._marked = True
            self._close_source()

    def _open_source(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                self._source.open(self._positions)
                return
            except ServiceUnavailable as error:
                failures += 1
                self._away(error, failures)

    def _away(self, error: ServiceUnavailable, failures: int) -> None:
        if failures == 1:
            log.warning("%s; reading waits and tries again", error)
        longest = min(LONGEST_BACKOFF_SECONDS, 0.25 * 2 ** min(failures, 10))
        self._stopping.wait(longest * random.uniform(0.5, 1.0))

    def _turn(self) -> None:
        """Poll, pack while there is room, look whether this is the end."""
        self._room.clear()
        self._back_pressure()
        full = self._full
        idle_ms = 0 if self._at_work else POLL_TIMEOUT_MS
        for batch in self._source.poll(FULL_POLL_TIMEOUT_MS if full else idle_ms):
            self._pending.extend(split(self._positions.polled(batch), CHUNK_BYTES))
        if full:
            self._room.wait(POLL_TIMEOUT_MS / 1000)
        if not self._pack():
            self._look()
        self._silence.look(self._clock.monotonic(), self._packer.records, self._positions.assigned)
        self._count()
        self._positions.report(self._source, self._clock.monotonic())

    def _back_pressure(self) -> None:
        ours = set(self._positions.assigned)
        if self._full or len(self._pending) > 1:
            self._source.pause(ours)
            self._paused = ours
        elif self._paused:
            self._source.resume(self._paused & ours)
            self._paused = set()

    @property
    def _full(self) -> bool:
        return self._queue.qsize() >= self._data.queue_blocks

    @property
    def _at_work(self) -> bool:
        """Whether there is something to pack."""
        return self._packing is not None or bool(self._pending)

    def _pack(self) -> bool:
        """Pack block by block while there is room; whether there was room and work."""
        packed = False
        while self._at_work and not self._full and not self._stopping.is_set():
            packed = True
            if self._packing is None:
                self._packing = self._packed(self._pending[0])
            try:
                item = next(self._packing, None)
            except ServiceUnavailable:
                # Nothing of the batch is packed yet, and it stays the first in line.
                self._packing = None
                raise
            if item is None:
                self._packing = None
            else:
                self._put(item)
        return packed

    def _packed(self, batch: RecordBatch) -> Iterator[Packed]:
        partition = batch.partition
        for document in self._documents.of(batch):
            yield from self._packer.add(document.ids_L, partition, document.next_offset)
        self._packer.passed(partition, batch.next_offset, batch.topic_id)
        self._pending.popleft()

    def _put(self, packed: Packed) -> None:
        self._hungry_since = None
        self._queue.put(Read(*packed))

    def _flush(self) -> None:
        for packed in self._packer.flush():
            self._put(packed)

    def _look(self) -> None:
        """Nothing came: how far the ends are, and whether a block is to go out as it is."""
        now = self._clock.monotonic()
        if now >= self._look_due:
            self._look_due = now + LOOK_SECONDS
            self._lag = self._positions.lag(self._source.end_offsets())
            if self._until_end and self._lag == 0 and not self._at_work:
                self._flush()
                self._done.set()
                return
        hungry = self._hungry_since
        waited = hungry is not None and now - hungry >= self._data.max_wait_seconds
        # A document that is half packed may not be cut by a flush.
        if waited and not self._at_work:
            self._flush()

    def _count(self) -> None:
        self._stats = StreamStats(
            records=self._packer.records,
            tokens=self._packer.tokens,
            bad=dict(self._documents.bad),
            queued_blocks=self._queue.qsize(),
            lag_records=self._lag,
            gap_records=self._positions.gap_records,
        )

    def _close_source(self) -> None:
        self._positions.leaving = True
        try:
            self._positions.report(self._source, None)
            self._source.close()
        except StreamfreqError as error:
            log.debug("leaving the group: %s", error)
