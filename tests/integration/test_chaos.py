"""Two minutes of faults with a fixed seed, as a process of their own, on real services."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.kafka import KafkaBroker

REPOSITORY = Path(__file__).resolve().parents[2]
MINUTES = 2.0
SEED = 3


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
            *("--outage-seconds", "6"),
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
    # Slow machines do fewer in the time; each of them is a fault of another kind.
    assert sum(report["faults"].values()) >= 5
    assert done.returncode == 0
