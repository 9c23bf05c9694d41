"""Every source against every law of the port; logs also against those of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamfreq.errors import DataRefused, OffsetExpired, ServiceUnavailable
from streamfreq.sources import StartAt
from streamfreq.sources.memory import MemorySource
from tests.conformance.source_rigs import (
    FilesRig,
    KafkaRig,
    MemoryRig,
    Reader,
    Recorder,
    Rig,
    words,
)

_KAFKA = pytest.param("kafka", marks=pytest.mark.broker)


def _make(kind: str, request: pytest.FixtureRequest, folder: Path) -> Rig:
    if kind == "files":
        return FilesRig(folder)
    if kind == "memory":
        return MemoryRig()
    return KafkaRig(request.getfixturevalue("kafka_broker"))


@pytest.fixture(params=["memory", "files", _KAFKA])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    """Two partitions of each kind of source."""
    return _make(request.param, request, tmp_path)


@pytest.fixture(params=["memory", _KAFKA])
def log_rig(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryRig | KafkaRig:
    """Two partitions of each kind of log: records expire, have times, may be null."""
    made = _make(request.param, request, tmp_path)
    assert isinstance(made, MemoryRig | KafkaRig)
    return made


def test_every_record_comes_once_in_order_and_then_the_lag_is_zero(rig: Rig) -> None:
    rig.fill(rig.first, words("a", 2_500))
    rig.fill(rig.second, words("b", 1_200))
    source, listener = rig.source(), Recorder()
    source.open(listener)
    try:
        assert source.end_offsets() is None
        reader = Reader(source)
        reader.poll_until({rig.first: 2_500, rig.second: 1_200})
        reader.poll_times(2)
        assert reader.records(rig.first) == list(enumerate(words("a", 2_500)))
        assert reader.records(rig.second) == list(enumerate(words("b", 1_200)))
        assert source.end_offsets() == reader.next_offsets
        assert listener.events == [("assigned", [rig.first, rig.second])]
        source.report_position(reader.next_offsets)
    finally:
        source.close()
    assert listener.events[1:] == [("revoked", [rig.first, rig.second])]
    source.close()
    assert len(listener.events) == 2


def test_reading_begins_where_the_listener_says(rig: Rig) -> None:
    rig.fill(rig.first, words("a", 20))
    rig.fill(rig.second, words("b", 20))
    source = rig.source()
    starts = {rig.first: StartAt(offset=7), rig.second: StartAt(policy="latest")}
    source.open(Recorder(starts=starts))
    try:
        reader = Reader(source)
        reader.poll_until({rig.first: 20})
        reader.poll_times(2)
        assert reader.records(rig.first) == list(enumerate(words("a", 20)))[7:]
        assert reader.records(rig.second) == []
    finally:
        source.close()


def test_where_a_start_without_an_offset_is_comes_as_a_batch(rig: Rig) -> None:
    rig.fill(rig.first, words("a", 20))
    source = rig.source()
    source.open(Recorder(start=StartAt(policy="latest")))
    try:
        reader = Reader(source)
        reader.poll_for(lambda: reader.next_offsets == {rig.first: 20, rig.second: 0})
        assert sum(map(len, reader.batches)) == 0
        reader.poll_times(2)
        assert len(reader.batches) == 2
        assert source.end_offsets() == reader.next_offsets
    finally:
        source.close()


def test_seek_goes_back_and_forth(rig: Rig) -> None:
    rig.fill(rig.first, words("a", 30))
    source = rig.source()
    source.open(Recorder())
    try:
        reader = Reader(source)
        reader.poll_until({rig.first: 30})
        reader.batches.clear()
        source.seek(rig.first, StartAt(offset=28))
        reader.poll_times(6)
        assert [offset for offset, _ in reader.records(rig.first)] == [28, 29]
        reader.batches.clear()
        source.seek(rig.first, StartAt(policy="earliest"))
        source.seek(rig.first, StartAt(offset=25))
        reader.poll_times(6)
        assert [offset for offset, _ in reader.records(rig.first)] == [25, 26, 27, 28, 29]
    finally:
        source.close()


def test_what_is_paused_does_not_come_until_it_is_resumed(rig: Rig) -> None:
    rig.fill(rig.first, words("a", 10))
    rig.fill(rig.second, words("b", 10))
    source = rig.source()
    listener = Recorder(start=StartAt(offset=10))
    source.open(listener)
    try:
        reader = Reader(source)
        reader.poll_for(lambda: listener.events)
        source.pause([rig.first])
        for partition in (rig.first, rig.second):
            source.seek(partition, StartAt(offset=0))
        reader.poll_for(lambda: len(reader.values(rig.second)) == 10)
        reader.poll_times(4)
        assert reader.values(rig.first) == []
        source.pause([rig.first, rig.second])
        source.resume([rig.first])
        reader.poll_for(lambda: len(reader.values(rig.first)) == 10)
        assert reader.values(rig.first) == words("a", 10)
        assert reader.values(rig.second) == words("b", 10)
    finally:
        source.close()


def test_an_error_of_the_listener_comes_out_of_poll_and_it_is_asked_again(rig: Rig) -> None:
    rig.fill(rig.first, words("a", 5))
    source, listener = rig.source(), Recorder()
    listener.failing = ServiceUnavailable("the store is away")
    source.open(listener)
    try:
        reader = Reader(source)
        for _ in range(2):
            with pytest.raises(ServiceUnavailable, match="the store is away"):
                reader.poll_until({rig.first: 5})
        listener.failing = None
        reader.poll_until({rig.first: 5})
        assert reader.values(rig.first) == words("a", 5)
        assert {tuple(partitions) for _, partitions in listener.events} == {(rig.first, rig.second)}
    finally:
        source.close()


def test_a_partition_that_the_answer_leaves_out_waits_for_seek(rig: Rig) -> None:
    rig.fill(rig.first, words("a", 5))
    rig.fill(rig.second, words("b", 5))
    source, listener = rig.source(), Recorder()
    listener.left_out = {rig.first}
    source.open(listener)
    try:
        reader = Reader(source)
        reader.poll_until({rig.second: 5})
        reader.poll_times(3)
        assert reader.records(rig.first) == []
        source.seek(rig.first, StartAt(offset=2))
        source.resume([rig.first])
        reader.poll_until({rig.first: 5})
        assert [offset for offset, _ in reader.records(rig.first)] == [2, 3, 4]
    finally:
        source.close()
    assert listener.told("revoked") == [rig.first, rig.second]


def test_an_offset_beyond_the_end_is_refused(rig: Rig) -> None:
    rig.fill(rig.first, words("a", 5))
    source = rig.source()
    source.open(Recorder(starts={rig.first: StartAt(offset=50)}))
    try:
        with pytest.raises(DataRefused, match=r"50"):
            Reader(source).poll_until({rig.first: 50})
    finally:
        source.close()


def test_a_source_that_is_not_open_says_so(rig: Rig) -> None:
    source = rig.source()
    with pytest.raises(RuntimeError, match="not open"):
        source.poll(10)
    source.close()


def test_timestamps_and_null_values_come_as_they_are(log_rig: MemoryRig | KafkaRig) -> None:
    log_rig.fill(log_rig.first, [b"x", None, b"", b"\xff\x00"], [1_000, 2_000, 1_500, 0])
    source = log_rig.source()
    source.open(Recorder())
    try:
        reader = Reader(source)
        reader.poll_until({log_rig.first: 4})
        assert reader.values(log_rig.first) == [b"x", None, b"", b"\xff\x00"]
        stamps = [int(t) for batch in reader.batches for t in batch.timestamps_ms_R]
        assert stamps == [1_000, 2_000, 1_500, 0]
    finally:
        source.close()


def test_a_start_by_time(log_rig: MemoryRig | KafkaRig) -> None:
    log_rig.fill(log_rig.first, words("a", 6), [1_000 * row for row in range(6)])
    log_rig.fill(log_rig.second, words("b", 6), [1_000 * row for row in range(6)])
    source = log_rig.source()
    starts = {log_rig.first: StartAt(time_ms=3_500), log_rig.second: StartAt(time_ms=9_000)}
    source.open(Recorder(starts=starts))
    try:
        reader = Reader(source)
        reader.poll_until({log_rig.first: 6})
        log_rig.fill(log_rig.second, [b"later"])
        reader.poll_until({log_rig.second: 7})
        assert [offset for offset, _ in reader.records(log_rig.first)] == [4, 5]
        assert reader.records(log_rig.second) == [(6, b"later")]
    finally:
        source.close()


@pytest.mark.parametrize(("policy", "first_read"), [("earliest", 6), ("latest", 10)])
def test_an_expired_offset_is_a_gap(
    log_rig: MemoryRig | KafkaRig,
    policy: str,
    first_read: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    log_rig.fill(log_rig.first, words("a", 10))
    log_rig.expire(log_rig.first, 6)
    source = log_rig.source(expired_offset=policy)
    listener = Recorder(starts={log_rig.first: StartAt(offset=2)})
    source.open(listener)
    try:
        reader = Reader(source)
        reader.poll_for(lambda: listener.gaps)
        log_rig.fill(log_rig.first, [b"new"])
        reader.poll_until({log_rig.first: 11})
        assert listener.gaps == [(log_rig.first, 2, first_read)]
        assert [offset for offset, _ in reader.records(log_rig.first)] == list(
            range(first_read, 11)
        )
        if isinstance(log_rig, KafkaRig):
            said = f"GAP, offsets 2 to {first_read - 1} are not counted: the broker begins at 6"
            assert said in caplog.text
    finally:
        source.close()


def test_an_expired_offset_may_be_an_error(log_rig: MemoryRig | KafkaRig) -> None:
    log_rig.fill(log_rig.first, words("a", 10))
    log_rig.expire(log_rig.first, 6)
    source = log_rig.source(expired_offset="fail")
    listener = Recorder(starts={log_rig.first: StartAt(offset=2)})
    source.open(listener)
    try:
        for _ in range(2):
            with pytest.raises(OffsetExpired, match=r"\b2\b.*\b6\b"):
                Reader(source).poll_until({log_rig.first: 10})
        assert listener.gaps == []
    finally:
        source.close()


def test_offsets_without_records_move_the_next_offset(log_rig: MemoryRig | KafkaRig) -> None:
    log_rig.fill(log_rig.first, [b"x"])
    log_rig.skip(log_rig.first)
    source = log_rig.source()
    source.open(Recorder())
    try:
        reader = Reader(source)
        reader.poll_until({log_rig.first: 4})
        assert reader.values(log_rig.first) == [b"x"]
        assert source.end_offsets() == {log_rig.first: 4, log_rig.second: 0}
        log_rig.skip(log_rig.first)
        reader.poll_until({log_rig.first: 7})
        log_rig.fill(log_rig.first, [b"y"])
        reader.poll_until({log_rig.first: 8})
        assert reader.records(log_rig.first) == [(0, b"x"), (7, b"y")]
    finally:
        source.close()


def test_a_start_is_told_by_an_empty_batch_in_front_of_the_records(rig: Rig) -> None:
    rig.fill(rig.first, words("a", 20))
    source = rig.source()
    source.open(Recorder(starts={rig.first: StartAt(offset=7), rig.second: StartAt(offset=0)}))
    try:
        reader = Reader(source)
        reader.poll_until({rig.first: 20, rig.second: 0})
        begun, *others = (batch for batch in reader.batches if batch.partition == rig.first)
        assert (len(begun), begun.next_offset) == (0, 7)
        assert sum(map(len, others)) == 13
        source.seek(rig.first, StartAt(offset=20))
        assert source.end_offsets() is None, "it may be another topic now"
        reader.batches.clear()
        reader.poll_for(lambda: reader.batches)
        assert [(len(batch), batch.next_offset) for batch in reader.batches] == [(0, 20)]
    finally:
        source.close()


def test_files_have_no_topic_id(tmp_path: Path) -> None:
    rig = FilesRig(tmp_path)
    rig.fill(rig.first, words("a", 3))
    source = rig.source()
    source.open(Recorder())
    reader = Reader(source)
    reader.poll_until({rig.first: 3, rig.second: 0})
    source.close()
    assert reader.topic_ids() == {""}


def test_every_batch_carries_the_id_of_its_topic(log_rig: MemoryRig | KafkaRig) -> None:
    def ids(start: StartAt, until: int) -> set[str]:
        source = log_rig.source()
        source.open(Recorder(start=start))
        try:
            reader = Reader(source)
            reader.poll_until({log_rig.first: until, log_rig.second: until})
            reader.poll_times(2)
            return reader.topic_ids()
        finally:
            source.close()

    for partition in (log_rig.first, log_rig.second):
        log_rig.fill(partition, words("a", 5))
    (first,) = ids(StartAt(policy="earliest"), 5)
    assert first
    assert ids(StartAt(offset=5), 5) == {first}, "told although there is nothing to read"
    log_rig.remake()
    for partition in (log_rig.first, log_rig.second):
        log_rig.fill(partition, words("b", 8))
    (second,) = ids(StartAt(offset=5), 8)
    assert second
    assert second != first
    assert ids(StartAt(offset=8), 8) == {second}


def test_a_topic_made_again_is_refused_before_any_of_its_records(
    log_rig: MemoryRig | KafkaRig,
) -> None:
    log_rig.fill(log_rig.first, words("a", 5))
    source = log_rig.source()
    source.open(Recorder())
    try:
        reader = Reader(source)
        reader.poll_until({log_rig.first: 5})
        log_rig.remake()
        log_rig.fill(log_rig.first, words("another", 9))
        with pytest.raises(DataRefused, match=f"{log_rig.first.topic} was deleted and made again"):
            reader.poll_for(lambda: False)
        assert reader.values(log_rig.first) == words("a", 5)
    finally:
        source.close()


def test_the_memory_group_takes_partitions_away() -> None:
    rig = MemoryRig()
    rig.fill(rig.first, words("a", 3))
    rig.fill(rig.second, words("b", 3))
    source = MemorySource(rig.log, [rig.first, rig.second])
    listener = Recorder()
    source.open(listener)
    reader = Reader(source)
    reader.poll_until({rig.first: 3, rig.second: 3})
    source.revoke([rig.first])
    source.lose([rig.second])
    rig.fill(rig.first, [b"more"])
    reader.poll_times(2, timeout_ms=1)
    assert listener.events[1:] == [("revoked", [rig.first]), ("lost", [rig.second])]
    assert source.end_offsets() is None
    source.assign([rig.first])
    listener.starts[rig.first] = StartAt(offset=3)
    reader.poll_until({rig.first: 4})
    assert reader.values(rig.first) == [*words("a", 3), b"more"]
    source.away = True
    with pytest.raises(ServiceUnavailable):
        source.poll(1)
    source.away = False
    source.report_position({rig.first: 4})
    assert source.reported == {rig.first: 4}
    source.close()
    assert listener.events[-1] == ("revoked", [rig.first])
