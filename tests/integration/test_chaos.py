"""Two minutes of faults with a fixed seed, as a process of their own, on real services."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.chaos_parts.cluster import faketime_library
from tests.services.kafka import KafkaBroker

REPOSITORY = Path(__file__).resolve().parents[2]
MINUTES = 2.0
SEED = 3
KINDS = {
    "kill-at-commit.3",
    "kill-at-publish.6",
    "term-at-commit.2",
    "stop-at-commit.2",
    "zombie",
    "join",
    "broker-restart",
    "redis-set-back",
    "redis-set-back-kill",
    "redis-lost-kill",
    "redis-away",
    "redis-full",
    "clock-jumps",
}
"""One of each family; `make chaos` has the others too."""


@pytest.mark.broker
@pytest.mark.redis_server
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_minutes_of_faults_leave_every_count_right(
    kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    """The broker fixture says how to get one when there is none; the trial has its own."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.chaos", "--json", "--keep", str(tmp_path)),
            *("--minutes", str(MINUTES), "--seed", str(SEED), "--workers", "3"),
            *("--outage-seconds", "6", "--whole-round", "--kinds", ",".join(sorted(KINDS))),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.stdout, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["violations"] == []
    assert report["difference"] == 0
    assert report["decayed_relative_error"] <= 1e-9
    assert report["records"] > 5_000
    assert report["snapshots"] > 10
    without_a_clock = set() if faketime_library() else {"clock-jumps"}
    assert set(report["faults"]) == KINDS - without_a_clock
    assert report["zombies"]["stopped"] >= 2
    assert report["zombies"]["noticed"] == report["zombies"]["stopped"]
    assert done.returncode == 0
