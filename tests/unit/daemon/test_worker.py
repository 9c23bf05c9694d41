"""Laws of the queue between polling and counting."""

from __future__ import annotations

import threading

import numpy as np

from streamfreq.counting import Counters
from streamfreq.daemon.worker import RECORD_BYTES, WorkQueue
from streamfreq.partition import Partition
from streamfreq.records import RecordBatch, TopicPartition

TP = TopicPartition("news", 0)
PARTITION = Partition(TP, Counters((60.0,), 4), "f00d")


def batch(*values: bytes | None) -> RecordBatch:
    rows = np.arange(len(values), dtype=np.int64)
    return RecordBatch(TP, rows, rows, list(values), len(values))


def test_full_and_drained_by_bytes_and_by_records_without_any() -> None:
    queue = WorkQueue(max_bytes=1_000)
    queue.put((PARTITION, batch(b"x" * 100)))
    assert not queue.full
    queue.put((PARTITION, batch(*[None] * (1_000 // RECORD_BYTES))))
    assert queue.full
    assert not queue.drained
    queue.take(10_000, 0)
    assert queue.drained


def test_take_gives_all_in_order_but_not_much_more_than_asked() -> None:
    queue = WorkQueue(10_000)
    batches = [batch(b"x" * 100) for _ in range(5)]
    for item in batches:
        queue.put((PARTITION, item))
    first = queue.take(150, 0)
    rest = queue.take(10_000, 0)
    assert first is not None
    assert rest is not None
    assert [item for _, item in (*first, *rest)] == batches
    assert len(first) == 1


def test_idle_only_when_what_was_taken_is_done() -> None:
    queue = WorkQueue(10_000)
    assert queue.idle
    queue.put((PARTITION, batch(b"x")))
    assert not queue.idle
    queue.take(100, 0)
    assert not queue.idle
    queue.done()
    assert queue.idle


def test_an_empty_queue_answers_after_the_timeout_and_a_closed_one_at_once() -> None:
    queue = WorkQueue(10_000)
    assert queue.take(100, 0.01) == []
    queue.put((PARTITION, batch(b"x")))
    threading.Timer(0.05, queue.close).start()
    while queue.take(100, 10) is not None:
        queue.done()
    assert queue.take(100, 10) is None
    assert queue.idle
