"""Laws of assignment: restore, wait for the store, commit on revoke, never on loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from streamfreq.checkpoints.memory import MemoryCheckpointStore
from streamfreq.clock import ManualClock
from streamfreq.codec import Checkpoint
from streamfreq.daemon.assignment import Assignment, CountersSpec, Told
from streamfreq.errors import CheckpointRefused, ServiceUnavailable
from streamfreq.partition import Partition
from streamfreq.records import RecordBatch, TokenBatch, TopicPartition
from streamfreq.sources.base import StartAt

A, B = TopicPartition("news", 0), TopicPartition("news", 1)
SPEC = CountersSpec((60.0, math.inf), 4, True, "cpu", 1, "f00d")
EARLIEST = StartAt(policy="earliest")


class AwayStore(MemoryCheckpointStore):
    """Can be switched off."""

    away = False
    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def load(self, partition: TopicPartition, known: Checkpoint | None = None) -> Checkpoint | None:
        if self.away:
            raise ServiceUnavailable("away")
        self.meanwhile()
        return super().load(partition, known)


class Bench:
    def __init__(self, spec: CountersSpec = SPEC, store: AwayStore | None = None) -> None:
        self.store = store or AwayStore("job")
        self.committed: list[TopicPartition] = []
        self.clock = ManualClock()
        self.start = EARLIEST
        self.restored: dict[TopicPartition, int] = {}
        self.gaps: dict[TopicPartition, int] = {}
        self.beats = 0
        told = Told(self.commit, self.restored.__setitem__, self.gaps.__setitem__, self.beat)
        self.assignment = Assignment(spec, self.store, lambda: self.start, told, self.clock)

    def beat(self) -> None:
        self.beats += 1

    def commit(self, partitions: Sequence[Partition], limit_seconds: float) -> None:
        assert limit_seconds < math.inf
        for item in partitions:
            item.commit(self.store, 1)
            self.committed.append(item.partition)

    def begin(self, partition: TopicPartition, of: int) -> None:
        """The source tells where reading begins, in a topic of so many partitions."""
        item = self.assignment.get(partition)
        assert item is not None
        batch = RecordBatch.empty(partition, 0, "id", of)
        item.count(TokenBatch.empty(), np.empty(0, np.int64), batch)

    def count(self, partition: TopicPartition, token_id: int, offset: int) -> None:
        item = self.assignment.get(partition)
        assert item is not None
        tokens = TokenBatch(np.array([token_id], np.int32), np.array([1], np.int64))
        batch = RecordBatch(partition, np.array([offset]), np.array([1_000]), [b"a"], offset + 1)
        item.count(tokens, np.array([1_000], np.int64), batch)


def test_without_a_checkpoint_it_begins_at_the_policy_and_with_one_at_its_offset() -> None:
    bench = Bench()
    assert bench.assignment.on_assigned([A, B]) == {A: EARLIEST, B: EARLIEST}
    bench.count(A, 1, 0)
    bench.assignment.on_revoked([A])
    assert bench.committed == [A]
    assert bench.assignment.get(A) is None
    assert not bench.restored
    assert bench.assignment.on_assigned([A]) == {A: StartAt(offset=1)}
    assert bench.restored == {A: 1}
    assert bench.beats == 3


@pytest.mark.parametrize("start", [StartAt(policy="latest"), StartAt(time_ms=5), EARLIEST])
def test_a_partition_that_the_topic_got_later_begins_with_its_first_record(start: StartAt) -> None:
    bench = Bench()
    bench.start = start
    other = TopicPartition("other", 0)
    assert bench.assignment.on_assigned([A, other]) == {A: start, other: start}
    bench.begin(A, of=2)
    bench.assignment.on_revoked([A])
    added, foreign = TopicPartition("news", 2), TopicPartition("another", 5)
    assert bench.assignment.on_assigned([added, foreign]) == {added: EARLIEST, foreign: start}
    bench.begin(added, of=3)
    bench.assignment.on_revoked([added])
    assert bench.assignment.on_assigned([TopicPartition("news", 3)]) == {
        TopicPartition("news", 3): EARLIEST
    }


@pytest.mark.parametrize("start", [StartAt(policy="latest"), StartAt(time_ms=5)])
def test_one_that_was_there_begins_as_configured_though_others_have_checkpoints(
    start: StartAt,
) -> None:
    """Killed within the first round of commits, or its checkpoint was lost or deleted."""
    bench = Bench()
    bench.start = start
    bench.assignment.on_assigned([A, B])
    bench.begin(A, of=2)
    bench.assignment.on_revoked([A])
    again = Bench(store=bench.store)
    again.start = start
    assert again.assignment.on_assigned([A, B]) == {A: StartAt(offset=0), B: start}


def test_loading_takes_turns_when_the_store_is_slow() -> None:
    bench = Bench()
    many = [TopicPartition("news", number) for number in range(8)]
    bench.store.meanwhile = lambda: bench.clock.advance(4)
    first = bench.assignment.on_assigned(many)
    assert list(first) == many[:3]
    assert bench.assignment.unloaded == set(many[3:])
    assert list(bench.assignment.load_pending()) == many[3:6]
    assert list(bench.assignment.load_pending()) == many[6:]
    assert not bench.assignment.unloaded


def test_a_gap_is_told_and_recorded() -> None:
    bench = Bench()
    bench.assignment.on_assigned([A])
    bench.assignment.on_gap(A, 3, 10)
    assert bench.gaps == {A: 7}


def test_while_the_store_is_away_partitions_wait_and_then_load() -> None:
    bench = Bench()
    bench.store.away = True
    assert bench.assignment.on_assigned([A, B]) == {}
    assert bench.assignment.unloaded == {A, B}
    assert bench.assignment.get(A) is None
    assert bench.assignment.load_pending() == {}
    bench.store.away = False
    assert bench.assignment.load_pending() == {A: EARLIEST, B: EARLIEST}
    assert not bench.assignment.unloaded


def test_what_waits_and_is_revoked_is_forgotten() -> None:
    bench = Bench()
    bench.store.away = True
    bench.assignment.on_assigned([A, B])
    bench.assignment.on_revoked([A])
    bench.store.away = False
    assert bench.assignment.load_pending() == {B: EARLIEST}


def test_what_is_lost_is_not_committed_and_counts_no_more() -> None:
    bench = Bench()
    bench.assignment.on_assigned([A])
    item = bench.assignment.get(A)
    assert item is not None
    bench.count(A, 1, 0)
    bench.assignment.on_lost([A])
    assert bench.committed == []
    assert item.closed
    assert bench.store.load(A) is None


def test_a_conflict_is_reloaded_from_the_checkpoint() -> None:
    bench = Bench()
    bench.assignment.on_assigned([A])
    other = Bench(store=bench.store)
    other.assignment.on_assigned([A])
    other.count(A, 2, 0)
    other.assignment.on_revoked([A])
    bench.count(A, 1, 0)
    item = bench.assignment.get(A)
    assert item is not None
    item.close()
    assert bench.assignment.collect_conflicts() == [A]
    assert bench.assignment.load_pending() == {A: StartAt(offset=1)}
    assert bench.assignment.collect_conflicts() == []


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"fingerprint": "beef"}, "tokenizer f00d"),
        ({"half_lives_seconds": (60.0,)}, "half-lives"),
        ({"documents": False}, "counting.documents"),
    ],
)
def test_a_checkpoint_made_differently_is_refused_with_the_way_out(
    changed: dict[str, object], named: str
) -> None:
    bench = Bench()
    bench.assignment.on_assigned([A])
    bench.count(A, 1, 0)
    bench.assignment.on_revoked([A])
    other = Bench(replace(SPEC, **changed), bench.store)  # type: ignore[arg-type]
    with pytest.raises(CheckpointRefused, match=f"{named}.*another `job` name") as refused:
        other.assignment.on_assigned([A])
    assert "\n" not in str(refused.value)
