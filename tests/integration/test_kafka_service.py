"""The throwaway broker of `make kafka` and `make demo KAFKA=1`: it serves, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from kafka import KafkaAdminClient

from tests.services.kafka import REPOSITORY, KafkaBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def traces() -> set[str]:
    """Brokers that run, and folders of brokers."""
    running = {
        f"process {process.pid}"
        for process in psutil.process_iter(["cmdline"])
        if "kafka.Kafka" in (process.info["cmdline"] or [])
    }
    return running | {path.name for path in Path(tempfile.gettempdir()).glob("streamfreq-kafka-*")}


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.services", *words]
    return subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_in_the_foreground_until_a_signal(
    kafka_broker: KafkaBroker, ending: signal.Signals
) -> None:
    before = traces()
    with start("kafka") as service:
        assert service.stdout is not None
        ready, address = service.stdout.readline().split()
        assert ready == "ready"
        admin = KafkaAdminClient(bootstrap_servers=address)
        assert admin.list_topics() == []
        admin.close()
        assert len(traces() - before) == 2
        os.killpg(service.pid, ending)  # as a terminal does: to the whole foreground group
        assert service.wait(20) == 0
        assert service.stdout.read() == ""
    assert traces() == before


def test_it_runs_a_command_and_gives_back_its_exit_code(kafka_broker: KafkaBroker) -> None:
    before = traces()
    code = "import sys; print(sys.argv[1:]); sys.exit(7)"
    with start("kafka", "--run", sys.executable, "-c", code, "one two") as service:
        assert service.stdout is not None
        said = service.stdout.read()
        assert service.wait(60) == 7
    assert said.startswith("['one two', '--kafka', '127.0.0.1:")
    assert traces() == before


def test_other_words_are_a_command_of_their_own() -> None:
    with start(sys.executable, "-c", "print('hello')") as service:
        assert service.stdout is not None
        assert service.stdout.read() == "hello\n"
        assert service.wait(20) == 0
    with start("kafka", "--stop") as service:
        assert service.wait(20) == 2
