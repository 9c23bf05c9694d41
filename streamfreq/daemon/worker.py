"""The counting thread: takes polled batches from a bounded queue, tokenizes and counts them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

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


class WorkQueue:
    """Batches between the poll thread and the counting thread, bounded by bytes.

    The poll thread never waits here: when the queue is full it pauses the source instead, so
    that group membership goes on. What is taken counts as busy until `done`.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._items: deque[tuple[Work, int]] = deque()
        self._bytes = 0
        self._busy = False
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
        """Whether nothing waits and nothing is being counted."""
        with self._changed:
            return not self._items and not self._busy

    def put(self, work: Work) -> None:
        """Add a batch; never waits."""
        batch = work[1]
        size = sum(len(value) for value in batch.values if value is not None)
        size += RECORD_BYTES * len(batch)
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
            self._busy = bool(taken)
            return taken

    def done(self) -> None:
        """What was taken is counted."""
        with self._changed:
            self._busy = False
            self._changed.notify_all()

    def close(self) -> None:
        """Drop what waits, wake the counting thread up to end."""
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

    def count(self, work: Sequence[Work]) -> None:
        """Count each batch into its partition, skipping what is below the next offset.

        Raises BadRecord, after counting everything in front of it, when a bad record's policy is
        stop; StreamfreqError when tokenizer and counters do not fit.
        """
        live = []
        for partition, batch in work:
            if not partition.closed:
                live.append((partition, batch.since(partition.next_offset or 0)))
        with self._metrics.encode_timer():
            results = self._tokenization.run([batch for _, batch in live])
        for (partition, batch), result in zip(live, results, strict=True):
            if not partition.closed:
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
            bytes=sum(len(value) for value in result.batch.values if value is not None),
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


class CountingThread:
    """Runs a BatchCounter over a WorkQueue until closed; keeps the error that ended it."""

    def __init__(
        self,
        queue: WorkQueue,
        counter: BatchCounter,
        max_batch_bytes: int,
        beat: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._counter = counter
        self._max_batch_bytes = max_batch_bytes
        self._beat = beat
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="counting", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Drop what is queued, finish the batch in hand; whether it ended in time."""
        self._queue.close()
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while (work := self._queue.take(self._max_batch_bytes, BEAT_SECONDS)) is not None:
                if work:
                    self._counter.count(work)
                    self._queue.done()
                self._beat()
        except BaseException as error:
            self.error = error
            self._queue.close()
