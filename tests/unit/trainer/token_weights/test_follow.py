"""Snapshots are followed in the background and swapped in only where the loop says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from streamfreq.config import SnapshotsConfig
from streamfreq.errors import ConfigError, ServiceUnavailable, SnapshotRefused
from streamfreq.snapshots import (
    MemorySnapshots,
    MemorySnapshotStore,
    SnapshotStore,
    open_snapshots,
)
from tests.services.redis import RedisServer
from tests.unit.trainer.token_weights.test_recipe import LONG, SHORT, config, snapshot
from trainer.config import TokenWeightsConfig
from trainer.token_weights import Recipe, Terms, TokenWeights

V = 8
OPEN: list[TokenWeights] = []


@pytest.fixture(autouse=True)
def nobody_follows_on() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


class Store(MemorySnapshotStore):
    """A store that can be away, hang, or hold damaged bytes."""

    away = False
    damaged = False
    hangs: threading.Event | None = None

    def latest_version(self) -> int:
        if self.hangs is not None:
            self.hangs.wait(60)
        if self.away:
            raise ServiceUnavailable("redis://x can't be reached; is it running?")
        return super().latest_version()

    def load(self, version: int | None = None):
        if self.damaged:
            raise SnapshotRefused("snapshot 9: checksum does not fit")
        return super().load(version)


def store() -> Store:
    return Store("news", snapshots=MemorySnapshots())


def follow(of: SnapshotStore, *, interval: float = 3600.0, **options: object) -> TokenWeights:
    weights = TokenWeights.of_store(
        of, "f", Recipe(vocab_size=V), vocab_size=V, pull_interval_seconds=interval, **options
    )
    OPEN.append(weights)
    return weights


def wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_weights_change_only_in_refresh() -> None:
    source = store()
    source.publish(snapshot(SHORT, LONG), 1)
    weights = follow(source)
    assert weights.wait(20)
    first = weights.weights
    grown = [*LONG]
    grown[7] = 500.0
    source.publish(snapshot(SHORT, grown, version=4, as_of_ms=9), 1)  # its hint wakes the puller
    wait_until(lambda: weights._puller._ready is not None)
    assert weights.version == 3
    assert weights.weights is first
    assert weights.refresh()
    assert weights.version == 4
    assert weights.weights is not first
    assert weights.weights[7] < first[7]
    assert not weights.refresh()


def test_a_hint_is_not_needed() -> None:
    source = store()
    weights = follow(source, interval=0.05)
    weights._puller._hints.close()
    source.publish(snapshot(SHORT, LONG), 1)
    wait_until(weights.refresh)
    assert weights.version == 3


def test_refresh_never_waits_for_a_store_that_hangs() -> None:
    source = store()
    source.hangs = threading.Event()
    weights = follow(source, interval=0.01)
    assert not any(weights.refresh() for _ in range(1000))
    assert weights.version == 0
    assert (weights.weights == 1).all()
    source.publish(snapshot(SHORT, LONG), 1)
    source.hangs.set()
    wait_until(weights.refresh)


def test_what_is_of_no_use_is_refused_and_the_last_good_one_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = store()
    source.publish(snapshot(SHORT, LONG), 1)
    weights = follow(source)
    assert weights.wait(20)
    good = weights.weights
    source.publish(snapshot(SHORT, LONG, version=4, as_of_ms=9, tokenizer_fingerprint="other"), 1)
    wait_until(lambda: weights.refused == 1)
    source.damaged = True
    source.publish(snapshot(SHORT, LONG, version=5, as_of_ms=10), 1)
    wait_until(lambda: weights.refused == 2)
    assert not weights.refresh()
    assert weights.weights is good
    assert "the last good snapshot stays" in caplog.text


def test_a_store_that_is_away_is_told_once_each_way(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trainer.token_weights")
    source = store()
    source.away = True
    weights = follow(source)
    wait_until(lambda: weights.away)
    for _ in range(3):
        weights._puller.pull_now()
    source.away = False
    source.publish(snapshot(SHORT, LONG), 1)
    wait_until(weights.refresh)
    assert not weights.away
    told = [record.message for record in caplog.records if record.name == "trainer.token_weights"]
    assert [line.split(";")[0].split(" after")[0] for line in told] == [
        "redis://x can't be reached",
        "the snapshot store is back",
    ]


def test_a_snapshot_that_does_not_fit_the_model_is_the_users_to_mend() -> None:
    source = store()
    source.publish(snapshot(SHORT, LONG), 1)
    weights = TokenWeights.of_store(source, "f", Recipe(vocab_size=5), vocab_size=5)
    OPEN.append(weights)
    with pytest.raises(ConfigError, match="the model has 5 token ids"):
        weights.wait(20)


def test_a_later_snapshot_that_does_not_fit_is_refused_and_a_fitting_one_is_used_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As when the daemon's half-lives are changed and changed back in the middle of a run."""
    source = store()
    recipe = Recipe(config(product=[{"scheme": "inverse_power", "horizon": "1h"}]), vocab_size=V)
    weights = TokenWeights.of_store(source, "f", recipe, vocab_size=V)
    OPEN.append(weights)
    source.publish(snapshot(SHORT, LONG), 1)
    assert weights.wait(20)
    other = snapshot(SHORT, LONG, version=4, as_of_ms=9, half_lives_seconds=(60.0, 7200.0))
    source.publish(other, 1)
    wait_until(lambda: weights.refused == 1)
    assert not weights.refresh()
    assert weights.version == 3
    assert 'snapshot 4: weights.product[0].horizon = "1h"' in caplog.text
    source.publish(snapshot(SHORT, LONG, version=5, as_of_ms=10), 1)
    wait_until(weights.refresh)
    assert weights.version == 5


def test_a_mistake_of_the_daemon_that_was_mended_is_forgotten() -> None:
    source = store()
    recipe = Recipe(config(published="mine"), vocab_size=V)
    weights = TokenWeights.of_store(source, "f", recipe, vocab_size=V)
    OPEN.append(weights)
    source.publish(snapshot(SHORT, LONG), 1)
    with pytest.raises(ConfigError, match=r"weights.published = mine: the snapshot holds none"):
        weights.wait(20)
    mine = {"mine": np.ones(V, np.float32)}
    source.publish(snapshot(SHORT, LONG, version=4, as_of_ms=9, weights=mine), 1)
    wait_until(lambda: weights._puller._ready is not None)
    assert weights.refresh()


def test_terms_are_told_when_they_come_to_something_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trainer.token_weights")
    source = store()
    terms = Terms({"rare": (7,)}, 1.0, 0.1)
    weights = TokenWeights.of_store(source, "f", Recipe(vocab_size=V, terms=terms), vocab_size=V)
    OPEN.append(weights)
    for version, last in ((3, 3.0), (4, 4.0), (5, 900.0)):
        grown = [*LONG[:7], last]
        source.publish(snapshot(SHORT, grown, version=version, as_of_ms=version), 1)
        wait_until(weights.refresh)
    told = [record.message for record in caplog.records if record.message.startswith("terms:")]
    assert ["too common" in line for line in told] == [False, True]


@pytest.mark.redis_server
def test_a_server_that_dies_and_comes_back_is_heard_again(redis_kind: str) -> None:
    """The next pull by the schedule is an hour away: what is found is found by a hint."""
    with RedisServer(redis_kind, appendonly=True) as server:
        source = open_snapshots(server.config(), SnapshotsConfig(), "news")
        source.publish(snapshot(SHORT, LONG), 1)
        weights = follow(source)
        assert weights.wait(20)
        good = weights.weights
        server.kill()
        weights._puller.pull_now()
        assert weights.away
        assert not weights.refresh()
        assert weights.weights is good
        server.start()
        source.publish(snapshot(SHORT, LONG, version=4, as_of_ms=9), 1)
        wait_until(weights.refresh)
        assert (weights.version, weights.away) == (4, False)
        weights.close()


def test_age_counts_from_publication() -> None:
    source = store()
    weights = follow(source)
    assert weights.age_seconds is None
    source.publish(replace(snapshot(SHORT, LONG), created_at_ms=time.time_ns() // 1_000_000), 1)
    wait_until(weights.refresh)
    assert weights.age_seconds is not None
    assert 0 <= weights.age_seconds < 60


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "give the model's tokenizer"),
        (
            {"fingerprint": "f", "weights": TokenWeightsConfig(terms_file="x")},
            "terms_file needs the tokenizer",
        ),
    ],
)
def test_follow_says_what_is_missing(options: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        TokenWeights.follow("memory://missing", "news", vocab_size=V, **options)


def test_the_plain_weights_are_float32_whatever_the_counts() -> None:
    source = store()
    source.publish(snapshot([c * 1e12 for c in SHORT], [c * 1e12 for c in LONG]), 1)
    weights = follow(source)
    assert weights.wait(20)
    assert str(weights.weights.dtype) == "torch.float32"
    assert np.isfinite(weights.weights.numpy()).all()


def test_a_scheduler_that_is_late_and_no_hint_still_find_a_snapshot() -> None:
    """As after the wall clock was set back, with publish and subscribe blocked."""
    source = store()
    weights = follow(source, interval=0.05)
    weights._puller._scheduler.pause()
    with source._all.lock:
        source._all.listeners.clear()
    source.publish(snapshot(SHORT, LONG), 1)
    wait_until(weights.refresh)
