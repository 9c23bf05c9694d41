"""What workers do that they should not is a violation; children end with their trial."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.chaos_parts.cluster import ChaosError, Cluster
from benchmarks.chaos_parts.faults import Zombie
from benchmarks.chaos_parts.worker import Figures, Worker
from tests.services.with_parent import with_parent

SECONDS = 20.0


def worker(folder: Path, program: str, log: str = "") -> Worker:
    """A worker whose process runs this program in place of a daemon."""
    made = Worker.__new__(Worker)
    made.name, made.figures, made.started = "worker-1", Figures(), time.monotonic()
    made.log_file, made.fault_file = folder / "worker.log", folder / "worker.fault"
    made.clock_file = folder / "worker.clock"
    made.log_file.write_text(log)
    made._port = 0
    made._process = subprocess.Popen([sys.executable, "-c", program])
    return made


def cluster(folder: Path, *workers: Worker) -> Cluster:
    """A group of these, without services."""
    return Cluster(folder, folder, 3, None, list(workers))


@pytest.mark.parametrize(
    ("program", "wanted", "violation"),
    [
        ("", 0, ""),
        ("raise SystemExit(3)", 0, "worker-1 was to end with 0, but it ended with 3"),
        ("import os; os.kill(os.getpid(), 9)", -9, ""),
        ("", -9, "worker-1 was to end with -9, but it ended with 0"),
    ],
)
def test_only_the_end_that_was_planned_is_none(
    tmp_path: Path, program: str, wanted: int, violation: str
) -> None:
    one = worker(tmp_path, program)
    group = cluster(tmp_path, one)
    group.expect_end(one, wanted, SECONDS)
    assert group.violations == ([violation] if violation else [])
    assert group.workers == []
    assert group.gone == [one]


def test_who_does_not_end_is_killed_and_a_violation(tmp_path: Path) -> None:
    one = worker(tmp_path, "import time; time.sleep(600)")
    group = cluster(tmp_path, one)
    group.expect_end(one, 0, 0.2)
    assert group.violations == ["worker-1 was to end with 0, but it still runs"]
    assert one.exit_code == -signal.SIGKILL


@pytest.mark.parametrize(("log", "unbegun"), [("", 1), ("assigned wide-0\n", 0)])
def test_only_a_worker_that_has_not_said_a_word_may_end_by_sigterm_itself(
    tmp_path: Path, log: str, unbegun: int
) -> None:
    one = worker(tmp_path, "import time; time.sleep(600)", log)
    group = cluster(tmp_path, one)
    group.terminate(one)
    assert group.ended_unbegun == unbegun
    assert group.violations == (
        [] if unbegun else ["worker-1 was to end with 0, but it ended with -15"]
    )


def test_workers_that_never_share_the_partitions_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.chaos_parts.cluster.SETTLE_SECONDS", 0.0)
    one = worker(tmp_path, "")
    with pytest.raises(ChaosError, match="worker-1 do not share all partitions"):
        cluster(tmp_path, one).wait_until_settled()
    one.wait(SECONDS)


def test_a_zombie_has_noticed_when_its_log_says_so_after_it_was_stopped(tmp_path: Path) -> None:
    one = worker(tmp_path, "", log="lost wide-0 to another worker\n")
    assert one.wait(SECONDS) == 0
    zombie = Zombie(one, len(one.log()))
    assert not zombie.noticed()
    with one.log_file.open("a") as log:
        log.write("wide-0: version 3 is stored, so version 3 of this worker can't follow\n")
    assert zombie.noticed()
    assert zombie.refused()


def test_a_clock_is_set_as_a_whole(tmp_path: Path) -> None:
    one = worker(tmp_path, "")
    one.wait(SECONDS)
    one.set_clock("+2h")
    assert one.clock_file.read_text() == "+2h\n"
    assert [path.name for path in tmp_path.glob("worker.clock*")] == ["worker.clock"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of the end")
def test_a_child_ends_with_its_parent_even_when_that_one_is_killed() -> None:
    command = with_parent([sys.executable, "-c", "import time; time.sleep(600)"])
    program = (
        "import subprocess, sys, time\n"
        "from tests.services.with_parent import with_parent\n"
        "words = with_parent([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(subprocess.Popen(words, start_new_session=True).pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    assert command[-1] == "import time; time.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + SECONDS
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_child_is_the_command_itself(tmp_path: Path) -> None:
    words = with_parent([sys.executable, "-c", "import os; print(os.getpid(), os.environ['A'])"])
    with subprocess.Popen(
        words, env={**os.environ, "A": "b"}, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as child:
        out, _ = child.communicate(timeout=SECONDS)
    assert out.split() == [str(child.pid), "b"]
