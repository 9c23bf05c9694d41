"""Laws of the publisher: only committed counts, only forward, only with the lease."""

from __future__ import annotations

import math
import uuid
from dataclasses import replace

import numpy as np
import pytest

from streamfreq.checkpoints.memory import MemoryCheckpointStore
from streamfreq.clock import ManualClock
from streamfreq.codec import (
    NO_REVISION,
    CheckpointUpdate,
    DecayedState,
    Floor,
    Gap,
    Snapshot,
    StateChanges,
)
from streamfreq.config import SnapshotsConfig, WeightsConfig
from streamfreq.counting import Counters
from streamfreq.errors import CheckpointRefused, FencedOut, ServiceUnavailable
from streamfreq.publisher import LOSS_PATIENCE_SECONDS, Publisher, Recipe
from streamfreq.records import TokenBatch, TopicPartition
from streamfreq.snapshots.memory import (
    MemoryPublisherLease,
    MemorySnapshots,
    MemorySnapshotStore,
)
from tests.oracle import assert_close, recount

HALF_LIVES = (60.0, math.inf)
V = 6
RECORDS = {
    TopicPartition("a", 0): [((1, 1, 2), 1_000_000), ((3,), 1_060_000)],
    TopicPartition("a", 1): [((2, 5), 1_030_000)],
    TopicPartition("b", 0): [((1,), 940_000)],
}


def state_of(partition: TopicPartition) -> DecayedState:
    counters = Counters(HALF_LIVES, V)
    for ids, time_ms in RECORDS[partition]:
        counters.update(
            TokenBatch(np.array(ids, np.int32), np.array([len(ids)], np.int64)),
            np.array([time_ms], np.int64),
        )
    return counters.state()


class Bench:
    """A publisher on memory stores, and what it works with."""

    def __init__(self, holder: str = "one", other: Bench | None = None, **config: object) -> None:
        self.clock = other.clock if other else ManualClock(2_000_000)
        self.checkpoints = other.checkpoints if other else MemoryCheckpointStore("job")
        self.config = SnapshotsConfig(**config)  # type: ignore[arg-type]
        self.shared = other.shared if other else MemorySnapshots()
        self.snapshots = MemorySnapshotStore("job", 10, self.shared)
        self.lease = MemoryPublisherLease(
            self.shared, holder, self.config.lease_seconds, self.clock
        )
        self.publisher = Publisher(
            Recipe("job", "tiny", "f00d", {"default": WeightsConfig()}),
            self.config,
            self.checkpoints,
            self.snapshots,
            self.lease,
            self.clock,
        )

    def commit(
        self, partition: TopicPartition, state: DecayedState | None = None, **changes: object
    ) -> None:
        """Commit the partition's records, or `state`, behind what is stored."""
        update = CheckpointUpdate(
            partition,
            self.checkpoints.revisions().get(partition, NO_REVISION),
            uuid.uuid4().hex,
            10,
            StateChanges.all_of(state or state_of(partition)),
            "f00d",
            0,
        )
        self.checkpoints.commit(replace(update, **changes))  # type: ignore[arg-type]

    def wins(self) -> None:
        """Take the lease, and hear the others out."""
        self.publisher.keep_lease()
        self.clock.advance(2 * self.publisher.turn_seconds)
        assert self.publisher.keep_lease()

    def publish(self) -> Snapshot:
        snapshot = self.publisher.publish()
        assert snapshot is not None
        return snapshot


def test_the_snapshot_is_the_plain_sum_over_all_committed_records() -> None:
    bench = Bench()
    for partition in RECORDS:
        bench.commit(partition)
    snapshot = bench.publish()
    assert snapshot.as_of_ms == 1_060_000
    everything = [record for records in RECORDS.values() for record in records]
    counts_HV, documents_HV = recount(everything, HALF_LIVES, snapshot.as_of_ms, V)
    assert_close(snapshot.counts_HV, counts_HV)
    assert snapshot.documents_HV is not None
    assert_close(snapshot.documents_HV, documents_HV)
    assert snapshot.offsets == dict.fromkeys(RECORDS, 10)
    stored = bench.snapshots.load()
    assert stored is not None
    np.testing.assert_array_equal(stored.counts_HV, snapshot.counts_HV)


def test_nothing_committed_nothing_published() -> None:
    assert Bench().publisher.publish() is None


def test_nothing_new_nothing_published_then_only_forward() -> None:
    bench = Bench()
    partition = TopicPartition("a", 0)
    bench.commit(partition)
    assert bench.publish().version == 1
    assert bench.publisher.publish() is None
    bench.commit(partition, next_offset=11)
    second = bench.publish()
    assert (second.version, second.offsets[partition]) == (2, 11)


def test_gaps_and_labels_of_all_partitions_are_told() -> None:
    bench = Bench()
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    bench.commit(a, gaps=(Gap(a, 0, 3),), labels={1: "one"})
    bench.commit(b, gaps=(Gap(b, 5, 6),), labels={2: "two"})
    snapshot = bench.publish()
    assert snapshot.gaps == (Gap(a, 0, 3), Gap(b, 5, 6))
    assert snapshot.labels == {1: "one", 2: "two"}


def test_only_the_holder_of_the_lease_publishes_and_another_takes_over() -> None:
    one = Bench("one", lease_seconds=5)
    two = Bench("two", other=one, lease_seconds=5)
    one.commit(TopicPartition("a", 0))
    assert one.publish().version == 1
    assert two.publisher.publish() is None
    one.commit(TopicPartition("a", 0))
    one.clock.advance(6)
    two.wins()
    assert two.publish().version == 2


def test_who_is_new_to_the_lease_hears_the_others_out_first() -> None:
    """The store lost the last snapshot, and only the one that lost the lease knows of it."""
    one, two = Bench("one"), None
    a = TopicPartition("a", 0)
    one.commit(a, next_offset=10)
    one.publish()
    saved = dict(one.shared.kept), one.shared.latest, one.shared.floor
    one.commit(a, next_offset=11)
    seen = one.publish()
    two = Bench("two", other=one)
    one.shared.kept, one.shared.latest, one.shared.floor = saved
    one.lease.release()
    assert not two.publisher.keep_lease()
    assert two.publisher.publish() is None
    assert not one.publisher.keep_lease()
    one.clock.advance(2 * two.publisher.turn_seconds)
    two.commit(a, next_offset=12)
    assert two.publisher.keep_lease()
    assert two.publish().version == seen.version + 1


def test_a_daemon_that_never_published_tells_the_store_what_it_has_seen() -> None:
    one = Bench("one")
    two = Bench("two", other=one)
    a = TopicPartition("a", 0)
    one.commit(a, next_offset=10)
    one.publish()
    saved = one.shared.floor
    one.commit(a, next_offset=11)
    seen = one.publish()
    two.publisher.keep_lease()
    one.shared.floor = saved
    two.publisher.keep_lease()
    assert one.snapshots.floor() == Floor.of(seen)


def test_an_older_epoch_that_comes_back_is_not_taken_over() -> None:
    """The store lost all, a new epoch began, then an old backup with the old epoch was put back."""
    bench = Bench()
    a = TopicPartition("a", 0)
    bench.commit(a, next_offset=10)
    bench.publish()
    backup = dict(bench.shared.kept), bench.shared.latest, bench.shared.floor
    bench.shared.kept, bench.shared.latest, bench.shared.floor = {}, 0, Floor()
    bench.commit(a, next_offset=500)
    newest = bench.publish()
    bench.shared.kept, bench.shared.latest, bench.shared.floor = backup
    bench.publisher.keep_lease()
    assert bench.snapshots.floor() == Floor.of(newest)
    bench.checkpoints.delete(a)
    bench.commit(a, next_offset=20)
    assert bench.publisher.publish() is None
    bench.commit(a, next_offset=501)
    again = bench.publish()
    assert (again.epoch, again.version) == (newest.epoch, newest.version + 1)


@pytest.mark.parametrize("lives", [True, False])
def test_a_new_epoch_waits_a_while_for_the_workers_that_live(lives: bool) -> None:
    bench = Bench()
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    bench.commit(a, next_offset=10)
    bench.commit(b, next_offset=20)
    first = bench.publish()
    bench.shared.kept, bench.shared.latest, bench.shared.floor = {}, 0, Floor()
    bench.checkpoints.delete(a)
    bench.checkpoints.delete(b)
    bench.commit(a, next_offset=11)
    assert bench.publisher.publish() is None
    assert bench.publisher.held
    if lives:
        bench.commit(b, next_offset=21)
    else:
        bench.clock.advance(LOSS_PATIENCE_SECONDS)
    second = bench.publish()
    assert second.epoch > first.epoch
    assert list(second.offsets) == ([a, b] if lives else [a])


def test_a_lease_that_only_ran_out_is_no_new_term() -> None:
    """On a slow store every turn may come after the lease: nobody else was there meanwhile."""
    bench = Bench(lease_seconds=3)
    bench.commit(TopicPartition("a", 0))
    bench.publish()
    for offset in range(11, 14):
        bench.clock.advance(4)
        assert bench.publisher.keep_lease()
        bench.clock.advance(4)
        bench.commit(TopicPartition("a", 0), next_offset=offset)
        assert bench.publish().offsets[TopicPartition("a", 0)] == offset


def test_who_has_lost_the_lease_holds_no_checkpoints() -> None:
    one = Bench("one", lease_seconds=5)
    two = Bench("two", other=one, lease_seconds=5)
    one.commit(TopicPartition("a", 0))
    one.publish()
    one.clock.advance(6)
    two.wins()
    assert one.publisher.publish() is None
    assert not one.publisher._read
    one.commit(TopicPartition("a", 0), next_offset=11)
    one.clock.advance(6)
    one.wins()
    assert one.publish().offsets == {TopicPartition("a", 0): 11}


def test_a_publisher_that_slept_through_its_lease_is_refused() -> None:
    one = Bench("one", lease_seconds=5)
    two = Bench("two", other=one, lease_seconds=5)
    one.commit(TopicPartition("a", 0))
    fence = one.lease.acquire()
    assert fence is not None
    stale = one.publish()
    one.clock.advance(6)
    one.commit(TopicPartition("a", 0))
    two.wins()
    assert two.publish().version == 2
    with pytest.raises(FencedOut):
        one.snapshots.publish(replace(stale, version=3), fence)
    assert one.snapshots.latest_version() == 2


def test_all_mass_decayed_keeps_the_last_snapshot_and_marks_it_stale() -> None:
    bench = Bench(as_of="clock", min_mass=0.01)
    partition = TopicPartition("b", 0)
    counters = Counters((60.0, 120.0), V)
    counters.update(
        TokenBatch(np.array([1], np.int32), np.array([1], np.int64)), np.array([940_000], np.int64)
    )
    bench.commit(partition, state=counters.state())
    bench.clock.jump(-1_000)
    first = bench.publish()
    assert np.isfinite(first.counts_HV).all()
    bench.clock.jump(2_000 * 120)
    assert bench.publisher.publish() is None
    assert bench.snapshots.latest_version() == first.version
    assert bench.snapshots.stale_since_ms() is not None


def test_another_tokenizer_is_refused_and_named() -> None:
    bench = Bench()
    bench.commit(TopicPartition("a", 0), tokenizer_fingerprint="beef")
    with pytest.raises(CheckpointRefused, match="beef"):
        bench.publisher.publish()


@pytest.mark.parametrize("dies_at", ["revisions", "load", "latest_version", "floor", "publish"])
def test_the_store_goes_away_at_each_step_and_the_next_try_publishes(
    dies_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    bench.commit(TopicPartition("a", 0))
    owner = bench.checkpoints if dies_at in ("revisions", "load") else bench.snapshots

    def away(*_: object, **__: object) -> None:
        raise ServiceUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(owner, dies_at, away)
        with pytest.raises(ServiceUnavailable):
            bench.publisher.publish()
    assert bench.snapshots.latest_version() == 0
    assert bench.publish().version == 1


def test_what_readers_have_got_is_never_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    """The store goes back to older checkpoints: publishing waits until they are counted again."""
    bench = Bench()
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    bench.commit(a, next_offset=10)
    bench.commit(b, next_offset=20)
    first = bench.publish()
    bench.checkpoints.delete(a)
    for offset in (4, 9):
        if offset == 9:
            bench.commit(a, next_offset=offset)
        assert bench.publisher.publish() is None
        assert "1 partitions (a-0 ...)" in bench.publisher.held
    bench.commit(a, next_offset=11)
    second = bench.publish()
    assert not bench.publisher.held
    assert (second.version, second.epoch) == (first.version + 1, first.epoch)
    assert second.offsets == {a: 11, b: 20}
    assert len([text for text in caplog.messages if "lost writes" in text]) == 1


def test_the_next_publisher_does_not_take_back_either() -> None:
    one = Bench("one", lease_seconds=5)
    two = Bench("two", other=one, lease_seconds=5)
    a = TopicPartition("a", 0)
    one.commit(a, next_offset=10)
    first = one.publish()
    one.clock.advance(6)
    two.wins()
    one.checkpoints.delete(a)
    one.commit(a, next_offset=9)
    assert two.publisher.publish() is None
    one.commit(a, next_offset=12)
    second = two.publish()
    assert (second.version, second.epoch) == (first.version + 1, first.epoch)


def test_after_the_loss_of_everything_a_new_epoch_tells_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    a = TopicPartition("a", 0)
    bench.commit(a, next_offset=10)
    first = bench.publish()
    bench.checkpoints.delete(a)
    bench.shared.kept.clear()
    bench.shared.latest, bench.shared.floor = 0, Floor()
    bench.commit(a, next_offset=3)
    assert bench.publisher.publish() is None
    bench.clock.advance(LOSS_PATIENCE_SECONDS)
    second = bench.publish()
    assert second.version == first.version + 1
    assert second.epoch > first.epoch
    assert second.offsets == {a: 3}
    assert any("lost all snapshots" in text for text in caplog.messages)


def test_an_ended_epoch_binds_no_more_but_the_versions_go_on() -> None:
    bench = Bench()
    a = TopicPartition("a", 0)
    bench.commit(a, next_offset=10)
    first = bench.publish()
    bench.checkpoints.delete(a)
    bench.snapshots.end_epoch()
    bench.commit(a, next_offset=3)
    second = bench.publish()
    assert (second.version, second.offsets) == (first.version + 1, {a: 3})
    assert second.epoch > first.epoch


def test_a_store_that_lost_a_snapshot_gets_another_without_new_records() -> None:
    bench = Bench()
    bench.commit(TopicPartition("a", 0))
    bench.publish()
    saved = dict(bench.shared.kept), bench.shared.latest, bench.shared.floor
    bench.commit(TopicPartition("a", 0), next_offset=11)
    second = bench.publish()
    bench.shared.kept, bench.shared.latest, bench.shared.floor = saved
    third = bench.publish()
    assert (third.version, third.offsets) == (second.version + 1, second.offsets)
    assert bench.publisher.publish() is None


def test_as_of_never_goes_back_with_the_clock() -> None:
    bench = Bench(as_of="clock")
    bench.commit(TopicPartition("a", 0), next_offset=10)
    first = bench.publish()
    assert first.as_of_ms == bench.clock.now_ms()
    bench.clock.jump(-3_600)
    bench.commit(TopicPartition("a", 0), next_offset=11)
    assert bench.publish().as_of_ms == first.as_of_ms
