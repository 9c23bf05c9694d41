"""The replay of files: pace, resuming, and files that are not what they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamfreq.clock import ManualClock
from streamfreq.config import FilesConfig
from streamfreq.errors import ConfigError, DataRefused
from streamfreq.records import NO_TIMESTAMP, TopicPartition
from streamfreq.sources import StartAt
from streamfreq.sources.files import MAX_POLL_RECORDS, FilesSource, read_batches
from tests.conformance.source_rigs import Reader, Recorder


def write_lines(path: Path, count: int) -> Path:
    path.write_bytes(b"".join(b"line %d\n" % row for row in range(count)))
    return path


def source_of(*paths: Path, rate: float = 0.0, clock: ManualClock | None = None) -> FilesSource:
    config = FilesConfig(paths=[str(path) for path in paths], records_per_second=rate)
    return FilesSource(config, clock or ManualClock())


def test_read_batches_numbers_the_lines(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.txt", 200_000)
    told: list[int] = []
    next_offset = 0
    for batch in read_batches(str(path), told.append):
        assert batch.partition == TopicPartition(str(path), 0)
        assert batch.offsets_R[0] == next_offset
        assert batch.values[-1] == b"line %d" % batch.offsets_R[-1]
        assert set(batch.timestamps_ms_R.tolist()) == {NO_TIMESTAMP}
        next_offset = batch.next_offset
    assert next_offset == 200_000
    assert sum(told) == path.stat().st_size


def test_the_pace_holds_over_all_files(tmp_path: Path) -> None:
    clock = ManualClock()
    source = source_of(
        write_lines(tmp_path / "a", 500), write_lines(tmp_path / "b", 500), rate=128, clock=clock
    )
    source.open(Recorder())
    reader = Reader(source)
    for tick in range(1, 11):
        clock.advance(0.25)
        reader.poll_times(4, timeout_ms=0)
        assert sum(map(len, reader.batches)) == 32 * tick
    clock.advance(60)  # a suspended machine: no burst of a minute's records
    reader.poll_times(4, timeout_ms=0)
    assert sum(map(len, reader.batches)) == 320 + 128
    source.close()


def test_an_unpaced_poll_is_bounded(tmp_path: Path) -> None:
    source = source_of(write_lines(tmp_path / "a", 25_000))
    source.open(Recorder())
    reader = Reader(source)
    reader.poll_until({TopicPartition(str(tmp_path / "a"), 0): 25_000})
    assert max(map(len, reader.batches)) <= MAX_POLL_RECORDS
    source.close()


def test_files_take_turns(tmp_path: Path) -> None:
    source = source_of(write_lines(tmp_path / "a", 60_000), write_lines(tmp_path / "b", 60_000))
    source.open(Recorder())
    reader = Reader(source)
    reader.poll_times(4)
    assert len({batch.partition for batch in reader.batches}) == 2
    source.close()


def test_the_end_is_known_only_after_all_files_were_read(tmp_path: Path) -> None:
    first, second = write_lines(tmp_path / "a", 3), write_lines(tmp_path / "b", 4)
    source = source_of(first, second)
    source.open(Recorder())
    reader = Reader(source)
    one, other = TopicPartition(str(first), 0), TopicPartition(str(second), 0)
    source.poll(0)
    assert source.end_offsets() is None
    reader.poll_times(6, timeout_ms=0)
    assert source.end_offsets() == {one: 3, other: 4}
    source.seek(one, StartAt(offset=1))
    reader.poll(timeout_ms=0)
    assert source.end_offsets() == {one: 3, other: 4}
    source.close()


def test_a_file_that_became_shorter_is_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a", 3)
    partition = TopicPartition(str(path), 0)
    source = source_of(path)
    source.open(Recorder(starts={partition: StartAt(offset=9)}))
    with pytest.raises(DataRefused, match=r"has 3 lines.* line 9"):
        source.poll(0)
    source.close()


def test_a_start_by_time_is_the_first_line(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a", 3)
    partition = TopicPartition(str(path), 0)
    source = source_of(path)
    source.open(Recorder(start=StartAt(time_ms=1_000)))
    reader = Reader(source)
    reader.poll_until({partition: 3})
    assert len(reader.values(partition)) == 3
    source.close()


def test_wrong_paths_are_told_before_anything_is_read(tmp_path: Path) -> None:
    there = write_lines(tmp_path / "a", 3)
    with pytest.raises(ConfigError, match="stdin can't be replayed"):
        source_of(Path("-"))
    with pytest.raises(ConfigError, match="named twice"):
        source_of(there, there)
    with pytest.raises(ConfigError, match="there is no such file"):
        source_of(there, tmp_path / "none").open(Recorder())
