"""Alive while the loops beat, ready while every condition holds."""

from __future__ import annotations

import pytest

from streamfreq.clock import ManualClock
from streamfreq.telemetry import Health


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start_ms=1_700_000_000_000)


@pytest.fixture
def health(clock: ManualClock) -> Health:
    return Health(stale_after_seconds=30, clock=clock)


def test_starting_is_alive_but_not_ready(health: Health) -> None:
    report = health.report()
    assert report.alive
    assert not report.ready
    assert report.not_ready == ("starting",)


def test_ready_needs_every_condition(health: Health) -> None:
    health.set("kafka", True)
    health.set("redis", False, "no answer")
    assert health.report().not_ready == ("redis: no answer",)
    health.set("redis", True)
    assert health.report().ready
    health.set("kafka", False)
    assert health.report().not_ready == ("kafka: no",)


def test_a_silent_loop_is_dead_and_not_ready(health: Health, clock: ManualClock) -> None:
    health.set("redis", True)
    health.beat("poll")
    health.beat("counting")
    clock.advance(20)
    health.beat("counting")
    clock.advance(10)
    assert health.report().ready
    clock.advance(1)
    report = health.report()
    assert report.not_alive == ("poll: no sign of life for 31 s (at most 30 s)",)
    assert report.not_ready == report.not_alive
    health.beat("poll")
    assert health.report().ready


def test_the_wall_clock_plays_no_part(health: Health, clock: ManualClock) -> None:
    health.beat("poll")
    clock.jump(86_400)
    assert health.report().alive
    clock.jump(-2 * 86_400)
    assert health.report().alive


def test_a_long_step_may_be_silent_for_longer(health: Health, clock: ManualClock) -> None:
    health.beat("load", stale_after_seconds=300)
    clock.advance(299)
    assert health.report().alive
    health.beat("load")
    clock.advance(31)
    assert not health.report().alive


def test_a_resting_loop_may_be_silent(health: Health, clock: ManualClock) -> None:
    health.beat("counting")
    health.rest("counting")
    health.rest("never heard of")
    clock.advance(3600)
    assert health.report().alive
    health.beat("counting")
    clock.advance(31)
    assert not health.report().alive


def test_a_failed_loop_stays_dead(health: Health, clock: ManualClock) -> None:
    health.set("redis", True)
    health.beat("counting")
    health.fail("counting", "BadRecord: titles-0 offset 7")
    report = health.report()
    assert report.not_alive == ("counting: BadRecord: titles-0 offset 7",)
    assert not report.ready
