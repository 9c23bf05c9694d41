"""The same version on all processes, swapped at a boundary, old ones by policy, resumable."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from streamfreq.clock import ManualClock
from streamfreq.errors import ConfigError, DataRefused
from trainer.config import SubscriberConfig
from trainer.subscriber import SingleRank, Subscriber
from trainer.token_weights import TokenTables

V = 6


def tables(
    version: int, weight: float = 2.0, created_at_ms: int = 0, epoch: int = 1
) -> TokenTables:
    neutral = TokenTables.neutral(V)
    facts = {**neutral.facts(), "version": version, "created_at_ms": created_at_ms, "epoch": epoch}
    return TokenTables.from_parts(
        {**neutral.tensors(), "weights_V": torch.full((V,), weight)}, facts
    )


class Pulled:
    """A puller whose tables the test puts down by hand."""

    def __init__(self) -> None:
        self.ready: list[Any] = []
        self.refused, self.away = 0, False
        self.waited = 0.0
        self.clock: ManualClock | None = None

    def start(self) -> None: ...

    def close(self) -> None: ...

    def wait_first(self, timeout_seconds: float) -> bool:
        self.waited += timeout_seconds
        if self.clock is not None:
            self.clock.advance(timeout_seconds)
        return bool(self.ready)

    def take(self) -> TokenTables | None:
        item = self.ready.pop(0) if self.ready else None
        if isinstance(item, Exception):
            raise item
        return item


def subscriber(puller: Pulled | None, clock: ManualClock | None = None, ranks=None, **config):
    settings = SubscriberConfig.model_validate(config)
    neutral = TokenTables.neutral(V)
    return Subscriber(puller, settings, neutral, ranks or SingleRank(), clock or ManualClock())


def test_without_a_snapshot_it_begins_neutral_and_changes_at_a_boundary() -> None:
    puller = Pulled()
    mine = subscriber(puller)
    assert (mine.begin().weights_V == 1).all()
    assert mine.at_step_boundary() is None
    puller.ready.append(tables(4))
    changed = mine.at_step_boundary()
    assert changed is not None
    assert changed.version == mine.status().version == 4
    assert mine.at_step_boundary() is None


def test_it_waits_for_the_first_snapshot_if_wanted() -> None:
    clock, puller = ManualClock(), Pulled()
    puller.clock = clock
    subscriber(puller, clock, wait_seconds=3).begin()
    assert puller.waited == pytest.approx(3)
    puller.waited = 0.0
    subscriber(puller, clock, wait_seconds=3).begin(lambda: puller.waited > 1)
    assert 1 < puller.waited < 2
    puller.ready.append(tables(2))
    assert subscriber(puller, wait_seconds=3).begin().version == 2


@pytest.mark.parametrize("policy", ["keep", "neutral", "stop"])
def test_an_old_snapshot_and_a_fresh_one_after_it(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "trainer.subscriber")
    clock, puller = ManualClock(1_000), Pulled()
    mine = subscriber(puller, clock, max_age_seconds=60, on_stale=policy)
    puller.ready.append(tables(1, created_at_ms=1_000))
    assert mine.begin().version == 1
    clock.advance(59)
    assert mine.at_step_boundary() is None
    clock.advance(2)
    if policy == "stop":
        with pytest.raises(DataRefused, match=r"snapshot 1 is 61 s old .* policy is stop"):
            mine.at_step_boundary()
        return
    swapped = mine.at_step_boundary()
    assert swapped is not None
    assert (swapped.version, mine.status().stale) == (1 if policy == "keep" else 0, True)
    assert mine.at_step_boundary() is None
    puller.ready.append(tables(2, created_at_ms=clock.now_ms()))
    fresh = mine.at_step_boundary()
    assert fresh is not None
    assert (fresh.version, mine.status().stale) == (2, False)
    assert sum("is 61 s old" in record.message for record in caplog.records) == 1
    assert sum("fresh again" in record.message for record in caplog.records) == 1


def test_strength_holds_for_later_snapshots_too() -> None:
    puller = Pulled()
    puller.ready.append(tables(1, weight=3.0))
    mine = subscriber(puller)
    mine.begin()
    mine.set_strength(0.5)
    changed = mine.at_step_boundary()
    assert changed is not None
    assert (changed.weights_V == 2.0).all()
    puller.ready.append(tables(2, weight=5.0))
    changed = mine.at_step_boundary()
    assert changed is not None
    assert (changed.weights_V == 3.0).all()


def test_a_resumed_run_begins_with_the_same_tables() -> None:
    puller = Pulled()
    puller.ready.append(tables(7, weight=1.5))
    first = subscriber(puller)
    first.begin()
    first.set_strength(0.4)
    used = first.at_step_boundary()
    second = subscriber(Pulled(), wait_seconds=100)
    second.load_state_dict(first.state_dict())
    begun = second.begin()
    assert used is not None
    assert torch.equal(begun.weights_V, used.weights_V)
    assert begun.facts() == used.facts()


@pytest.mark.parametrize(
    ("newer", "taken"),
    [
        (tables(7), False),  # what it has already
        (tables(6), False),  # the store lost writes
        (tables(8), True),
        (tables(1, epoch=2, created_at_ms=99), True),  # the store lost everything
    ],
)
def test_a_resumed_run_does_not_go_back_within_an_epoch(newer: TokenTables, taken: bool) -> None:
    puller = Pulled()
    puller.ready.append(tables(7))
    first = subscriber(puller)
    first.begin()
    other = Pulled()
    second = subscriber(other)
    second.load_state_dict(first.state_dict())
    second.begin()
    other.ready.append(newer)
    changed = second.at_step_boundary()
    assert (changed is not None) is taken


class Together:
    """Processes as threads: what the main one gives, the others get."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.barrier = threading.Barrier(count)
        self.given: Any = None

    def rank(self, number: int) -> Any:
        outer = self

        class Rank:
            rank, count, is_main = number, outer.count, number == 0

            def broadcast_object(self, value: Any) -> Any:
                outer.barrier.wait(20)
                if self.is_main:
                    outer.given = value
                outer.barrier.wait(20)
                return outer.given

            def broadcast_tensor(self, tensor: Tensor) -> Tensor:
                return self.broadcast_object(tensor)

        return Rank()


@pytest.mark.parametrize("count", [2, 3])
def test_all_processes_swap_the_same_tables_at_the_same_step(count: int) -> None:
    together, puller = Together(count), Pulled()
    used: dict[int, list[tuple[int, float]]] = {number: [] for number in range(count)}
    coming = {2: tables(1, 2.0), 3: tables(2, 3.0), 5: ConfigError("vocabulary too small")}
    failed: list[int] = []

    def work(number: int) -> None:
        mine = subscriber(puller if number == 0 else None, ranks=together.rank(number))
        now = mine.begin()
        try:
            for step in range(8):
                if number == 0 and step in coming:
                    puller.ready.append(coming[step])
                now = mine.at_step_boundary() or now
                used[number].append((now.version, float(now.weights_V[0])))
        except ConfigError:
            failed.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(failed) == list(range(count))
    assert all(steps == used[0] for steps in used.values())
    assert used[0] == [(0, 1.0), (0, 1.0), (1, 2.0), (2, 3.0), (2, 3.0)]
