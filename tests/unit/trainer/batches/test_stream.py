"""Blocks of a live source: nothing skipped or read twice, bad records by policy, bounded ahead."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from streamfreq.clock import SystemClock
from streamfreq.config import TextConfig, ValueConfig
from streamfreq.errors import BadRecord, DataRefused, ServiceUnavailable
from streamfreq.records import TokenBatch, TopicPartition
from streamfreq.sources import StartAt
from streamfreq.sources.memory import MemoryLog, MemorySource
from trainer.batches import BlockStream, Mixer, Packer, Specials
from trainer.batches.documents import Documents
from trainer.batches.silence import Silence
from trainer.blocks import IGNORED, Block, StreamState
from trainer.config import DataConfig, ReplayConfig
from trainer.replay import ReplayBuffer

NEWS = TopicPartition("news", 0)
SIZE = 8


class ByteTokenizer:
    """A token a byte; fails on texts with a %."""

    name = engine = "bytes"
    vocab_size = 256
    fingerprint = "bytes"
    ids_per_token = 1

    def encode_batch(self, texts: Sequence[str]) -> TokenBatch:
        assert not any("%" in text for text in texts)
        rows = [np.frombuffer(text.encode(), np.uint8).astype(np.int32) for text in texts]
        lengths = np.array([len(row) for row in rows], np.int64)
        return TokenBatch(np.concatenate([*rows, np.empty(0, np.int32)]), lengths)

    def token_text(self, token_id: int) -> str:
        return chr(token_id)

    def labels(self) -> dict[int, str]:
        return {}


OPEN: list[BlockStream] = []


@pytest.fixture(autouse=True)
def no_stream_is_left():
    yield
    while OPEN:
        OPEN.pop().close()


def stream_of(
    log: MemoryLog,
    *,
    value: dict | None = None,
    data: dict | None = None,
    until_end: bool = False,
    state: StreamState | None = None,
    source: MemorySource | None = None,
) -> BlockStream:
    documents = Documents(
        ValueConfig.model_validate(value or {}), TextConfig(), ByteTokenizer(), None
    )
    settings = {"block_size": SIZE, "max_wait_seconds": "inf", **(data or {})}
    stream = BlockStream(
        source or MemorySource(log, [NEWS]),
        documents,
        Packer(SIZE, Specials(pad_id=0)),
        DataConfig.model_validate(settings),
        StartAt(policy="earliest"),
        SystemClock(),
        until_end=until_end,
    )
    OPEN.append(stream)
    stream.open(state or StreamState())
    return stream


def texts_of(blocks: Sequence[Block]) -> str:
    """The text that the blocks teach, document after document, each without its first letter."""
    found = ""
    for block in blocks:
        found += "".join(chr(label) for label in block.labels_T if label != IGNORED)
    return found


def all_blocks(stream: BlockStream) -> list[Block]:
    blocks = []
    while not stream.ended:
        read = stream.get(5)
        if read is not None:
            blocks.append(read.block)
    return blocks


def wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def fill(log: MemoryLog, count: int, first: int = 0) -> str:
    for number in range(first, first + count):
        log.append(NEWS, f"<{number:05d}>".encode())
    return "".join(f"{number:05d}>" for number in range(first, first + count))


def test_everything_is_read_once_and_then_it_ends() -> None:
    log = MemoryLog()
    expected = fill(log, 500)
    stream = stream_of(log, until_end=True)
    assert texts_of(all_blocks(stream)) == expected
    stats = stream.stats()
    assert (stats.records, stats.tokens, stats.lag_records) == (500, 3500, 0)


@pytest.mark.parametrize("at", [0, 1, 7, 60])
def test_reading_goes_on_behind_any_block(at: int) -> None:
    log = MemoryLog()
    expected = fill(log, 100)
    first = stream_of(log, until_end=True)
    reads = []
    while len(reads) <= at:
        read = first.get(5)
        assert read is not None
        reads.append(read)
    second = stream_of(log, until_end=True, state=reads[-1].state)
    blocks = [read.block for read in reads] + all_blocks(second)
    assert texts_of(blocks) == expected


@pytest.mark.parametrize("record", [b"<short>", b"abcdefghijk" * 400])
def test_what_is_read_ahead_is_bounded(record: bytes) -> None:
    log = MemoryLog()
    for _ in range(300 if len(record) < 10 else 1):
        log.append(NEWS, record)
    stream = stream_of(log, data={"queue_blocks": 4}, until_end=True)
    wait_until(lambda: stream.stats().queued_blocks >= 4)
    highest = 0
    blocks = []
    while not stream.ended:
        highest = max(highest, stream.stats().queued_blocks)
        read = stream.get(5)
        if read is not None:
            blocks.append(read.block)
    assert highest == 4
    assert sum(int((block.labels_T != IGNORED).sum()) for block in blocks) == sum(
        len(record) - 1 for _ in range(log.end(NEWS))
    )


def test_the_rest_of_a_large_document_is_not_put_ahead_either_after_a_resume() -> None:
    log = MemoryLog()
    log.append(NEWS, b"seen")
    carry = np.arange(1, 201, dtype=np.int32)
    state = StreamState({NEWS: 1}, carry, 1, 208)
    stream = stream_of(log, data={"queue_blocks": 4}, until_end=True, state=state)
    wait_until(lambda: stream.stats().queued_blocks >= 4)
    assert stream.stats().queued_blocks == 4
    labels = [block.labels_T[block.labels_T != IGNORED] for block in all_blocks(stream)]
    assert np.concatenate(labels).tolist() == list(range(2, 201))


def test_bad_records_are_counted_and_lose_no_other() -> None:
    log = MemoryLog()
    for value in (b"first", None, b"", b"p%ison", b"x" * 2000, b"last"):
        log.append(NEWS, value)
    stream = stream_of(log, value={"max_record_bytes": 1000}, until_end=True)
    assert texts_of(all_blocks(stream)) == "irst" + "ast"
    assert stream.stats().bad == {"null": 1, "empty": 1, "poison": 1, "too_large": 1}


def test_a_large_record_becomes_many_blocks() -> None:
    log = MemoryLog()
    log.append(NEWS, b"ab" * 1000)
    stream = stream_of(log, data={"queue_blocks": 10}, until_end=True)
    assert texts_of(all_blocks(stream)) == ("ab" * 1000)[1:]


def test_the_policy_stop_ends_reading_in_front_of_the_record() -> None:
    log = MemoryLog()
    log.append(NEWS, b'{"text": "good text"}')
    log.append(NEWS, b"no json")
    log.append(NEWS, b'{"text": "never read"}')
    stream = stream_of(log, value={"format": "json", "on_bad": "stop"}, until_end=True)
    read = stream.get(5)
    assert read is not None
    assert read.state.offsets == {NEWS: 1}
    with pytest.raises(BadRecord, match="news-0 offset 1: not_json; the policy is stop"):
        all_blocks(stream)


def test_an_empty_stream_gives_nothing_and_no_error() -> None:
    log = MemoryLog()
    log.append(NEWS, b"seen")
    log.expire(NEWS, 1)
    stream = stream_of(log)
    assert stream.get(0.3) is None
    assert not stream.ended
    ends = stream_of(log, until_end=True)
    wait_until(lambda: ends.ended)


def test_a_slow_stream_gives_a_padded_block_after_the_wait() -> None:
    log = MemoryLog()
    stream = stream_of(log, data={"max_wait_seconds": 0.1})
    log.append(NEWS, b"abc")
    read = stream.get(20)
    while read is None:
        read = stream.get(20)
    assert texts_of([read.block]) == "bc"
    assert read.state.offsets == {NEWS: 1}
    log.append(NEWS, b"defghijklm")
    read = stream.get(20)
    assert read is not None
    assert texts_of([read.block]) == "efghijk"


def test_a_topic_that_was_made_again_is_refused() -> None:
    log = MemoryLog()
    fill(log, 20)
    first = stream_of(log)
    read = first.get(10)
    assert read is not None
    first.close()
    log.remake("news")
    log.append(NEWS, b"another topic")
    state = StreamState({NEWS: 0}, topic_ids=read.state.topic_ids)
    second = stream_of(log, state=state)
    with pytest.raises(DataRefused, match="topic news was deleted and made again"):
        all_blocks(second)


class Flaky(MemorySource):
    """A service that is away now and then."""

    failures = 2

    def poll(self, timeout_ms: int):
        if self.failures and threading.current_thread().name == "stream":
            self.failures -= 1
            raise ServiceUnavailable("Kafka is away; is it running?")
        return super().poll(timeout_ms)


def test_reading_waits_while_the_service_is_away(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryLog()
    expected = fill(log, 30)
    caplog.set_level("INFO", "trainer.batches")
    stream = stream_of(log, until_end=True, source=Flaky(log, [NEWS]))
    assert texts_of(all_blocks(stream)) == expected
    assert [record.message for record in caplog.records] == [
        "Kafka is away; is it running?; reading waits and tries again",
        "reading again",
    ]


class EndingSlowly(MemorySource):
    """Its report of the position at the end takes until `go`."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log, [NEWS])
        self.stream: BlockStream | None = None
        self.inside, self.go = threading.Event(), threading.Event()

    def end_offsets(self):
        assert self.stream is not None
        self.stream.trained(StreamState({NEWS: 1}))  # so that this very turn reports it
        return super().end_offsets()

    def report_position(self, offsets) -> None:
        self.inside.set()
        assert self.go.wait(20)


def test_the_stream_has_not_ended_while_its_last_block_is_queued() -> None:
    log = MemoryLog()
    source = EndingSlowly(log)
    documents = Documents(ValueConfig(), TextConfig(), ByteTokenizer(), None)
    data = DataConfig.model_validate({"block_size": SIZE, "max_wait_seconds": "inf"})
    log.append(NEWS, b"abc")
    source.stream = stream = BlockStream(
        source,
        documents,
        Packer(SIZE, Specials(pad_id=0)),
        data,
        StartAt(policy="earliest"),
        SystemClock(),
        until_end=True,
    )
    OPEN.append(stream)
    stream.open(StreamState())
    assert source.inside.wait(20)
    while stream.stats().records == 0:  # the report of a turn before the record was packed
        time.sleep(0.01)
    early = stream.ended
    source.go.set()
    assert not early
    assert texts_of(all_blocks(stream)) == "bc"


class Repeating(MemorySource):
    """Gives records again, as a source does that went back on its own."""

    polls = 0

    def poll(self, timeout_ms: int):
        self.polls += 1
        if self.polls == 4:
            self.seek(NEWS, StartAt(offset=0))
        return super().poll(timeout_ms)


def test_records_below_the_wanted_offset_are_dropped() -> None:
    log = MemoryLog()
    expected = fill(log, 40)
    source = Repeating(log, [NEWS], max_poll_records=10)
    stream = stream_of(log, until_end=True, source=source)
    assert texts_of(all_blocks(stream)) == expected
    assert source.polls >= 4
    assert stream.stats().records == 40


def test_a_partition_that_comes_back_goes_on_and_a_revoke_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = MemoryLog()
    expected = fill(log, 20)
    source = MemorySource(log, [NEWS])
    stream = stream_of(log, source=source)
    wait_until(lambda: stream.stats().records == 20)
    source.revoke([NEWS])
    wait_until(lambda: bool(caplog.records))
    assert "1 partitions were taken away by the consumer group" in caplog.records[0].message
    expected += fill(log, 20, first=20)
    source.assign([NEWS])
    wait_until(lambda: stream.stats().records == 40)
    blocks = []
    while (read := stream.get(0.2)) is not None:
        blocks.append(read.block)
    assert len(texts_of(blocks)) > len(expected) - SIZE
    assert expected.startswith(texts_of(blocks))
    stream.close()
    assert len(caplog.records) == 1  # to leave the group is no surprise


def test_silence_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trainer.batches")
    silence = Silence(opened_at=100.0, records=7)
    for now, records in [(110, 7), (129, 7), (131, 7), (180, 7), (190, 8), (300, 8)]:
        silence.look(now, records, [NEWS])
    assert [record.message for record in caplog.records] == [
        "no record yet from news-0: training waits for the stream",
        "the first record came after 90 s",
    ]
    quick = Silence(opened_at=0.0, records=0)
    for now, records in [(1, 0), (2, 5), (60, 5)]:
        quick.look(now, records, [])
    assert len(caplog.records) == 2


def mixer_of(stream: BlockStream, rows: int, **config: object) -> Mixer:
    replay_config = ReplayConfig.model_validate({"capacity": 16, **config})
    replay = ReplayBuffer(replay_config, SIZE, seed=5)
    return Mixer(stream, replay, replay_config, rows, 60.0, SystemClock())


def steps_of(mixer: Mixer, limit: int = 10_000) -> list[list[tuple]]:
    steps = []
    while not mixer.ended and len(steps) < limit:
        rows = mixer.next(5)
        if rows is not None:
            steps.append(
                [(row.block.ids_T.tolist(), row.fresh, round(row.weight, 9)) for row in rows]
            )
    return steps


@pytest.mark.parametrize(("rows", "share"), [(4, 0.25), (3, 0.5), (5, 0.3), (1, 0.5)])
def test_the_share_of_replay_holds_and_every_block_is_new_once(rows: int, share: float) -> None:
    log = MemoryLog()
    fill(log, 200)
    blocks = [block.ids_T.tolist() for block in all_blocks(stream_of(log, until_end=True))]
    steps = steps_of(mixer_of(stream_of(log, until_end=True), rows, share=share))
    fresh = [ids for step in steps for ids, is_fresh, _ in step if is_fresh]
    assert fresh == blocks
    assert all(len(step) == rows for step in steps)
    replayed = sum(not is_fresh for step in steps[1:-1] for _, is_fresh, _ in step)
    wanted = share * rows * (len(steps) - 2) if rows > 1 else 0
    assert replayed == pytest.approx(wanted, abs=1)
    for number, step in enumerate(steps):
        seen = {tuple(ids) for earlier in steps[:number] for ids, new, _ in earlier if new}
        assert all(new or weight == 0 or tuple(ids) in seen for ids, new, weight in step)


@pytest.mark.parametrize("at", [1, 5, 12])
def test_steps_go_on_as_if_nothing_had_been(at: int) -> None:
    log = MemoryLog()
    fill(log, 120)
    expected = steps_of(mixer_of(stream_of(log, until_end=True), 4, share=0.3))
    first = mixer_of(stream_of(log, until_end=True), 4, share=0.3)
    begun = steps_of(first, at)
    state = first.state_dict()
    config = ReplayConfig(capacity=16, share=0.3)
    stream = BlockStreamLater(log)
    replay = ReplayBuffer(config, SIZE, seed=77)
    second = Mixer(stream, replay, config, 4, 60.0, SystemClock())
    second.load_state_dict(state)
    stream.begin(second.stream_state)
    assert begun + steps_of(second) == expected


class BlockStreamLater:
    """A stream that is opened after its mixer was restored, as the worker does it."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def begin(self, state: StreamState) -> None:
        self._stream = stream_of(self._log, until_end=True, state=state)

    def __getattr__(self, name: str):
        return getattr(self._stream, name)


def test_while_nothing_comes_replay_goes_on_if_wanted() -> None:
    log = MemoryLog()
    fill(log, 30)
    mixer = mixer_of(stream_of(log), 2, when_waiting="replay", share=0.5)
    steps = 0
    while steps < 60:
        rows = mixer.next(0.05)
        assert rows is not None or steps == 0
        steps += rows is not None
    assert not any(row.fresh for row in mixer.next(0.05) or ())
    waits = mixer_of(stream_of(MemoryLog()), 2)
    assert waits.next(0.05) is None
