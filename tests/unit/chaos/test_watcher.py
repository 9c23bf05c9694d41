"""The chaos trial's watcher and oracle can say no: each kind of lie is found."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.chaos_parts.oracle import Log, Oracle
from benchmarks.chaos_parts.report import Done, Report, judge, publish_gaps
from benchmarks.chaos_parts.watcher import Seen, Watcher, taken_back
from streamfreq.codec import Gap, Snapshot
from streamfreq.config import RedisConfig, SnapshotsConfig
from streamfreq.records import TopicPartition
from streamfreq.snapshots import open_snapshots
from tests.conformance.values import make_snapshot
from tests.oracle import recount

A, B = TopicPartition("wide", 0), TopicPartition("narrow", 0)
V = 8
HALF_LIVES = (60.0, math.inf)
RECORDS = {
    A: [(0, 1_000, [1, 1, 2]), (1, 61_000, [3]), (4, 30_000, [2, 7])],
    B: [(2, 40_000, [1])],
}


def oracle() -> Oracle:
    """An oracle that knows these records, without a broker."""
    made = Oracle.__new__(Oracle)
    made.logs = {
        partition: Log(
            np.array([offset for offset, _, _ in rows]),
            np.array([time_ms for _, time_ms, _ in rows]),
            [np.array(ids) for _, _, ids in rows],
        )
        for partition, rows in RECORDS.items()
    }
    made.records, made.tokens = 4, 7
    return made


def snapshot(offsets: dict[TopicPartition, int]) -> Snapshot:
    """The right snapshot for these offsets."""
    below = [
        (ids, time_ms)
        for partition, rows in RECORDS.items()
        for offset, time_ms, ids in rows
        if offset < offsets[partition]
    ]
    counts_HV, documents_HV = recount(below, HALF_LIVES, 70_000, V)
    records_HV, _ = recount([([0], time_ms) for _, time_ms in below], HALF_LIVES, 70_000, 1)
    return make_snapshot(
        3,
        half_lives_seconds=HALF_LIVES,
        as_of_ms=70_000,
        counts_HV=counts_HV,
        documents_HV=documents_HV,
        tokens_H=counts_HV.sum(axis=1),
        records_H=records_HV[:, 0],
        offsets=offsets,
        gaps=(),
        weights={},
    )


@pytest.mark.parametrize("offsets", [{A: 5, B: 3}, {A: 1, B: 3}, {A: 0, B: 0}, {A: 4, B: 2}])
def test_the_right_snapshot_of_any_offsets_has_no_difference(
    offsets: dict[TopicPartition, int],
) -> None:
    found = oracle().compare(snapshot(offsets), decayed=True)
    assert found.counts == 0
    assert found.decayed_relative < 1e-14


def one_count_more(right: Snapshot) -> Snapshot:
    counts_HV = right.counts_HV.copy()
    counts_HV[1, 2] += 1
    return replace(right, counts_HV=counts_HV)


def one_document_less(right: Snapshot) -> Snapshot:
    assert right.documents_HV is not None
    documents_HV = right.documents_HV.copy()
    documents_HV[1, 1] -= 1
    return replace(right, documents_HV=documents_HV)


def one_token_more_in_all(right: Snapshot) -> Snapshot:
    return replace(right, tokens_H=np.add(right.tokens_H, [0, 1]))


def one_record_less_in_all(right: Snapshot) -> Snapshot:
    return replace(right, records_H=np.subtract(right.records_H, [0, 1]))


def no_documents(right: Snapshot) -> Snapshot:
    return replace(right, documents_HV=None)


def another_offset(right: Snapshot) -> Snapshot:
    return replace(right, offsets={**right.offsets, A: 4})


def a_gap_that_holds_a_record(right: Snapshot) -> Snapshot:
    return replace(right, gaps=(Gap(A, 1, 3),))


@pytest.mark.parametrize(
    "lie",
    [
        one_count_more,
        one_document_less,
        one_token_more_in_all,
        one_record_less_in_all,
        no_documents,
        another_offset,
        a_gap_that_holds_a_record,
    ],
)
def test_a_wrong_count_is_a_difference(lie: Callable[[Snapshot], Snapshot]) -> None:
    wrong = lie(snapshot({A: 5, B: 3}))
    assert oracle().compare(wrong, decayed=False).counts >= 1
    report = Report()
    judge(report, [Seen(0.0, wrong)], oracle())
    assert not report.holds
    assert "differs by" in report.violations[0]


def test_a_wrong_decayed_count_is_an_error() -> None:
    right = snapshot({A: 5, B: 3})
    counts_HV = right.counts_HV.copy()
    counts_HV[0, 3] *= 1 + 1e-8
    found = oracle().compare(replace(right, counts_HV=counts_HV), decayed=True)
    assert found.counts == 0
    assert found.decayed_relative == pytest.approx(1e-8, rel=1e-3)
    report = Report()
    judge(report, [Seen(0.0, replace(right, counts_HV=counts_HV))], oracle())
    assert not report.holds


def test_what_was_not_counted_to_the_end_and_what_was_never_seen_are_violations() -> None:
    report = Report()
    judge(report, [Seen(0.0, snapshot({A: 4, B: 3}))], oracle())
    assert report.violations == ["not counted to the end: wide-0"]
    report = Report()
    judge(report, [], oracle())
    assert not report.holds


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"version": 9}, ""),
        ({"version": 8}, "its version does not grow"),
        ({"version": 9, "as_of_ms": 69_999}, "as_of goes back"),
        ({"version": 9, "offsets": {A: 4, B: 9}}, "the offsets of wide-0 go back"),
        ({"version": 9, "offsets": {B: 9}}, "the offsets of wide-0 go back"),
        ({"version": 9, "epoch": 5}, "begins an epoch though the store had lost nothing"),
    ],
)
def test_what_is_taken_back(changes: dict[str, object], wrong: str) -> None:
    before = replace(snapshot({A: 5, B: 3}), version=8)
    after = replace(before, **changes)  # type: ignore[arg-type]
    found = taken_back(before, after, epoch_may_end=False)
    assert found.endswith(wrong)
    assert bool(found) == bool(wrong)
    if "epoch" in changes:
        assert not taken_back(before, after, epoch_may_end=True)


def test_the_watcher_sees_each_snapshot_once_and_judges() -> None:
    redis = RedisConfig(url="memory://watched")
    store = open_snapshots(redis, SnapshotsConfig(), "job")
    watcher = Watcher(redis, "job", "f" * 64)
    for version, offset in ((1, 5), (2, 7), (3, 6)):
        store.publish(make_snapshot(version, offsets={A: offset}), 1)
        watcher._look()
        watcher._look()
    assert [seen.snapshot.version for seen in watcher.kept()] == [1, 2, 3]
    assert watcher.violations == [
        "the store: snapshot 3 after 2: the offsets of wide-0 go back",
    ]
    assert watcher.reached({A: 6})
    assert not watcher.reached({A: 7})


def test_what_was_seen_before_is_not_reached_again_until_it_is_seen_again() -> None:
    redis = RedisConfig(url="memory://forgotten")
    open_snapshots(redis, SnapshotsConfig(), "job").publish(make_snapshot(1, offsets={A: 5}), 1)
    watcher = Watcher(redis, "job", "f" * 64)
    watcher._look()
    assert watcher.reached({A: 5})
    watcher.forget_the_last()
    assert not watcher.reached({A: 5})
    watcher._look()
    assert watcher.reached({A: 5})


def test_gaps_count_for_the_faults_that_they_touch_and_leave_out_outages() -> None:
    one = snapshot({A: 5, B: 3})
    kept = [
        Seen(at, replace(one, version=version))
        for at, version in ((0.0, 1), (2.0, 2), (5.0, 2), (9.0, 3), (11.0, 4), (30.0, 5))
    ]
    done = [
        Done("kill", 1.0, 1.5, 3.0),
        Done("kill", 10.0, 10.5, 10.9),
        Done("redis-away", 12.0, 28.0, 29.0),
        Done("zombie", 11.1, 11.5, 11.9),
    ]
    assert publish_gaps(kept, done) == {"kill": 7.0, "zombie": 0.0}
