"""What the parts are given when a daemon is put together."""

from __future__ import annotations

import pytest

from streamfreq.clock import ManualClock
from streamfreq.config import Config
from streamfreq.daemon.build import SHORTEST_LEASE_SECONDS, with_short_lease
from streamfreq.publisher import Publisher, Recipe
from streamfreq.snapshots.memory import MemoryPublisherLease, MemorySnapshots, MemorySnapshotStore
from tests.unit.test_publisher import Bench


def config(publish: float, lease: float, cron: str = "") -> Config:
    return Config.model_validate(
        {
            "kafka": {"topics": ["news"]},
            "schedule": {"publish_interval_seconds": publish, "publish_cron": cron},
            "snapshots": {"lease_seconds": lease},
        }
    )


@pytest.mark.parametrize(
    ("publish", "lease", "expected"),
    [(30, 12, 12), (30, 15, 12), (30, 3, 3), (10, 12, 4), (2, 12, 3), (0.5, 0.3, 0.3)],
)
def test_a_lease_is_short_against_the_publish_interval(
    publish: float, lease: float, expected: float
) -> None:
    assert with_short_lease(config(publish, lease)).lease_seconds == expected
    assert with_short_lease(config(publish, lease, cron="* * * * *")).lease_seconds == lease


def test_the_default_lease_is_what_is_in_force() -> None:
    default = Config.model_validate({"kafka": {"topics": ["news"]}})
    assert with_short_lease(default) == default.snapshots


@pytest.mark.parametrize("publish", [7.5, 10.0, 30.0, 300.0])
def test_a_publisher_that_dies_leaves_no_gap_of_two_intervals(publish: float) -> None:
    """It dies in front of its turn, having renewed the lease: the latest moment there is."""
    settings = with_short_lease(config(publish, 60.0))
    assert settings.lease_seconds >= SHORTEST_LEASE_SECONDS
    clock, kept, checkpoints = ManualClock(), MemorySnapshots(), Bench().checkpoints

    def publisher(name: str) -> Publisher:
        return Publisher(
            Recipe("job", "tiny", "f00d", {}),
            settings,
            checkpoints,
            MemorySnapshotStore("job", 10, kept),
            MemoryPublisherLease(kept, name, settings.lease_seconds, clock),
            clock,
        )

    dying, other = publisher("dying"), publisher("other")
    assert dying.keep_lease()
    kept.latest = 1  # as after a first snapshot: the other one has to hear it out
    passed = 0.0
    while passed < publish:
        assert dying.keep_lease()
        clock.advance(step := min(dying.turn_seconds, publish - passed))
        passed += step
    assert dying.keep_lease()
    while not other.keep_lease():
        clock.advance(other.turn_seconds)
        passed += other.turn_seconds
    assert passed < 2 * publish
