"""The throwaway broker of `make kafka` and `make demo KAFKA=1`: it serves, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from kafka import KafkaAdminClient

from tests.services.kafka import REPOSITORY, KafkaBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def traces(folder: Path) -> list[str]:
    """Folders of brokers in `folder`, and brokers that run there."""
    running = [
        f"process {process.pid}"
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in word for word in process.info["cmdline"] or [])
    ]
    return running + [path.name for path in folder.iterdir()]


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """`python -m tests.services WORDS`, with its temporary files in `folder`."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.services", *words],
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_in_the_foreground_until_a_signal(
    kafka_broker: KafkaBroker, tmp_path: Path, ending: signal.Signals
) -> None:
    with start(tmp_path, "kafka") as service:
        assert service.stdout is not None
        ready, address = service.stdout.readline().split()
        assert ready == "ready"
        admin = KafkaAdminClient(bootstrap_servers=address)
        assert admin.list_topics() == []
        admin.close()
        assert len(traces(tmp_path)) == 2
        os.killpg(service.pid, ending)  # as a terminal does: to the whole foreground group
        assert service.wait(20) == 0
        assert service.stdout.read() == ""
    assert traces(tmp_path) == []


def test_it_runs_a_command_and_gives_back_its_exit_code(
    kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    code = "import sys; print(sys.argv[1:]); sys.exit(7)"
    with start(tmp_path, "kafka", "--run", sys.executable, "-c", code, "one two") as service:
        assert service.stdout is not None
        said = service.stdout.read()
        assert service.wait(60) == 7
    assert said.startswith("['one two', '--kafka', '127.0.0.1:")
    assert traces(tmp_path) == []


def test_other_words_are_a_command_of_their_own(tmp_path: Path) -> None:
    with start(tmp_path, sys.executable, "-c", "print('hello')") as service:
        assert service.stdout is not None
        assert service.stdout.read() == "hello\n"
        assert service.wait(20) == 0
    with start(tmp_path, "kafka", "--stop") as service:
        assert service.wait(20) == 2
