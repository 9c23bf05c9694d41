"""Two threads behind the polling one: the first tokenizes what was polled, the second counts it.

They share the interpreter, but engines, sorting and scattering run outside of its lock.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from streamfreq.clock import Clock
from streamfreq.counting import EventTimes
from streamfreq.daemon.pipeline import Tokenization, TokenizedBatch
from streamfreq.errors import BadRecord
from streamfreq.partition import Partition
from streamfreq.records import RecordBatch
from streamfreq.sources.base import DeadLetter, DeadLetters
from streamfreq.telemetry import Metrics

log = logging.getLogger("streamfreq.daemon")

BEAT_SECONDS = 1.0
"""How long the counting thread may be without work before it says that it is alive."""

RECORD_BYTES = 64
"""What a queued record takes beside its value, so that empty ones fill the queue too."""

Work = tuple[Partition, RecordBatch]
Tokenized = tuple[Partition, RecordBatch, TokenizedBatch]


class WorkQueue:
    """Batches between the poll thread and the counting thread, bounded by bytes.

    The poll thread never waits here: when the queue is full it pauses the source instead, so
    that group membership goes on. What is taken is still at hand until `done`.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._items: deque[tuple[Work, int]] = deque()
        self._bytes = 0
        self._taken = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def full(self) -> bool:
        """Whether the source should pause."""
        return self._bytes >= self._max_bytes

    @property
    def drained(self) -> bool:
        """Whether the source may resume: half of the room is free again."""
        return self._bytes <= self._max_bytes // 2

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is being tokenized or counted."""
        with self._changed:
            return not self._items and not self._taken

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def put(self, work: Work) -> None:
        """Add a batch; never waits."""
        batch = work[1]
        size = sum(map(len, filter(None, batch.values))) + RECORD_BYTES * len(batch)
        with self._changed:
            self._items.append((work, size))
            self._bytes += size
            self._changed.notify_all()

    def take(self, max_bytes: int, timeout_seconds: float) -> list[Work] | None:
        """The next batches, up to about `max_bytes` together; empty after the timeout.

        None when the queue is closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._closed, timeout_seconds)
            if self._closed:
                return None
            taken: list[Work] = []
            total = 0
            while self._items and (not taken or total < max_bytes):
                work, size = self._items.popleft()
                taken.append(work)
                total += size
            self._bytes -= total
            self._taken += bool(taken)
            return taken

    def done(self) -> None:
        """What one `take` gave is counted."""
        with self._changed:
            self._taken -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Drop what waits, wake the thread that takes, for it to end."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._bytes = 0
            self._changed.notify_all()


class BatchCounter:
    """Counts batches into their partitions and applies the policies for bad records."""

    def __init__(
        self,
        tokenization: Tokenization,
        event_times: EventTimes,
        clock: Clock,
        metrics: Metrics,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        self._tokenization = tokenization
        self._event_times = event_times
        self._clock = clock
        self._metrics = metrics
        self._dead_letters = dead_letters

    def tokenize(self, work: Sequence[Work]) -> list[Tokenized]:
        """Tokens of the batches, without those of partitions that have closed."""
        live = []
        for partition, batch in work:
            if not partition.closed:
                live.append((partition, batch.since(partition.next_offset or 0)))
        with self._metrics.encode_timer():
            results = self._tokenization.run([batch for _, batch in live])
        return [(*item, result) for item, result in zip(live, results, strict=True)]

    def count(self, tokenized: Sequence[Tokenized]) -> None:
        """Count each batch into its partition, skipping what is below the next offset.

        Raises BadRecord, after counting everything in front of it, when a bad record's policy is
        stop; StreamfreqError when tokenizer and counters do not fit.
        """
        for partition, batch, result in tokenized:
            if partition.closed:
                continue
            next_offset = partition.next_offset or 0
            if len(batch) and batch.offsets_R[0] < next_offset:
                # These were read twice, and counted while this batch was being tokenized.
                batch = batch.since(next_offset)
                (result,) = self._tokenization.run([batch])
            self._count_one(partition, batch, result)

    def _count_one(self, partition: Partition, batch: RecordBatch, result: TokenizedBatch) -> None:
        self._put_aside(batch, result)
        times = self._event_times.resolve(
            result.event_times_ms_R, partition.watermark_ms, self._clock.now_ms()
        )
        tokens = result.tokens.select(times.keep_R)
        counted = partition.count(tokens, times.times_ms_R[times.keep_R], result.batch)
        if not counted:
            return
        topic = partition.partition.topic
        self._metrics.batch_counted(
            topic,
            records=len(tokens),
            tokens=len(tokens.ids_N) // self._tokenization.ids_per_token,
            bytes=sum(map(len, filter(None, result.batch.values))),
        )
        for kind, number in result.tallies.items():
            self._metrics.bad(kind, number)
        self._metrics.event_times(times.tallies)
        if result.stopped_by is not None:
            offset = int(batch.offsets_R[result.stopped_by.row])
            raise BadRecord(
                f"{partition.partition} offset {offset}: {result.stopped_by.kind}, and the policy "
                "says stop; mend or skip the record (value.on_bad), then start again: "
                "counting goes on at this offset"
            )

    def _put_aside(self, batch: RecordBatch, result: TokenizedBatch) -> None:
        letters = [
            DeadLetter(
                batch.partition,
                int(batch.offsets_R[bad.row]),
                int(batch.timestamps_ms_R[bad.row]),
                batch.values[bad.row] or b"",
                bad.kind,
            )
            for bad in result.bad
            if bad.policy == "dead-letter"
        ]
        if letters and self._dead_letters is not None:
            self._dead_letters.put(letters)


class CountingThreads:
    """Run a BatchCounter over a WorkQueue until closed; keep the error that ended it.

    While one batch is counted the next one is tokenized. `beat` is called with the name of the
    thread that is alive, at least once a second unless it hangs.
    """

    def __init__(
        self,
        work: WorkQueue,
        counter: BatchCounter,
        max_batch_bytes: int,
        beat: Callable[[str], None],
    ) -> None:
        self._work = work
        self._counter = counter
        self._max_batch_bytes = max_batch_bytes
        self._beat = beat
        self._tokenized: queue.Queue[list[Tokenized] | BaseException] = queue.Queue(1)
        self.error: BaseException | None = None
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for name, target in (("tokenizing", self._tokenize), ("counting", self._count))
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Drop what is queued, finish the batches in hand; whether that was done in time."""
        self._work.close()
        with suppress(queue.Full):
            self._tokenized.put_nowait([])  # wakes the counting thread
        deadline = time.monotonic() + timeout_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _tokenize(self) -> None:
        try:
            while (work := self._work.take(self._max_batch_bytes, BEAT_SECONDS)) is not None:
                self._beat("tokenizing")
                if work:
                    self._hand_over(self._counter.tokenize(work))
        except BaseException as error:
            self._hand_over(error)  # what was tokenized before it is counted first

    def _hand_over(self, item: list[Tokenized] | BaseException) -> None:
        while not self._work.closed:
            self._beat("tokenizing")
            try:
                self._tokenized.put(item, timeout=BEAT_SECONDS)
                return
            except queue.Full:
                continue

    def _count(self) -> None:
        try:
            while not self._work.closed:
                self._beat("counting")
                try:
                    item = self._tokenized.get(timeout=BEAT_SECONDS)
                except queue.Empty:
                    continue
                if isinstance(item, BaseException):
                    raise item
                self._counter.count(item)
                self._work.done()
        except BaseException as error:
            self.error = error
            self._work.close()
