"""The fault switch: nothing without the variable, one process at one point with it."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamfreq import faults

PROGRAM = """
import sys
from streamfreq.faults import reach
for point in sys.argv[1:]:
    reach(point)
    print(point, flush=True)
"""


def start(file: Path | None, *points: str) -> subprocess.Popen[str]:
    environment = {key: value for key, value in os.environ.items() if key != faults.VARIABLE}
    if file is not None:
        environment[faults.VARIABLE] = str(file)
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *points],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_without_the_variable_nothing_is_looked_at(tmp_path: Path) -> None:
    assert faults.reach is faults._nothing
    (tmp_path / "fault").write_text("commit.1 kill")
    process = start(None, "commit.1")
    assert process.communicate(timeout=20)[0].split() == ["commit.1"]
    assert process.returncode == 0


def test_the_armed_point_kills_and_takes_the_file_away(tmp_path: Path) -> None:
    file = tmp_path / "fault"
    file.write_text("commit.2 kill")
    process = start(file, "commit.1", "commit.2", "commit.3")
    assert process.communicate(timeout=20)[0].split() == ["commit.1"]
    assert process.returncode == -signal.SIGKILL
    assert not file.exists()


def test_a_stopped_process_goes_on_there(tmp_path: Path) -> None:
    file = tmp_path / "fault"
    file.write_text("publish.6 stop")
    process = start(file, "publish.6", "publish.6", "publish.7")
    deadline = time.monotonic() + 20
    while file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    assert process.communicate(timeout=20)[0].split() == ["publish.6", "publish.6", "publish.7"]


@pytest.mark.parametrize(
    "content", ["", "commit.1", "one two three", "commit.9 kill", "commit.1 explode"]
)
def test_what_is_no_armed_point_does_nothing(tmp_path: Path, content: str) -> None:
    file = tmp_path / "fault"
    file.write_text(content)
    process = start(file, *faults.POINTS)
    assert process.communicate(timeout=20)[0].split() == list(faults.POINTS)
    assert process.returncode == 0


def test_every_point_is_reached_somewhere_in_the_order_of_the_steps() -> None:
    package = Path(faults.__file__).parent
    found: list[str] = []
    for name in ("partition.py", "publisher.py"):
        tree = ast.parse((package / name).read_text())
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        reached = [node for node in calls if ast.unparse(node.func) == "faults.reach"]
        for node in sorted(reached, key=lambda node: node.lineno):
            (argument,) = node.args
            assert isinstance(argument, ast.Constant)
            found.append(argument.value)
    assert found == list(faults.POINTS)
