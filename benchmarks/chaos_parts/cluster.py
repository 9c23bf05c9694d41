"""The services of a trial and its workers as a group."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.chaos_parts.worker import Worker
from streamfreq.records import TopicPartition
from tests.services.kafka import KafkaBroker
from tests.services.redis import RedisServer
from tests.services.slow_proxy import SlowProxy

TOPICS = {"wide": 24, "narrow": 6}
JOB = "chaos"
HALF_LIVES = ("24h", "2160h", "inf")
SESSION_SECONDS = 3.0
COMMIT_SECONDS = 0.5
PUBLISH_SECONDS = 2.0
SCRAPE_SECONDS = 0.5
START_SECONDS = 60.0
END_SECONDS = 45.0
SETTLE_SECONDS = 60.0
NOTICE_SECONDS = 15.0


class ChaosError(Exception):
    """The trial can't go on; the message says why."""


def configuration(broker: str, redis_port: int, tokenizer: Path) -> str:
    """A worker's file. Texts reach the tokenizer as they are, so that any library can recount."""
    return f"""
job = "{JOB}"
[kafka]
bootstrap_servers = ["{broker}"]
topics = {json.dumps(list(TOPICS))}
session_timeout_ms = {round(SESSION_SECONDS * 1000)}
[kafka.options]
heartbeat_interval_ms = 500
[value]
format = "json"
time_field = "ts"
[text]
normalize = "none"
strip_control = false
collapse_whitespace = false
[tokenizer]
path = {json.dumps(str(tokenizer))}
threads = 1
[counting]
half_lives = {json.dumps(HALF_LIVES)}
device = "cpu"
[redis]
url = "redis://127.0.0.1:{redis_port}"
timeout_ms = 2000
[schedule]
commit_interval_seconds = {COMMIT_SECONDS}
publish_interval_seconds = {PUBLISH_SECONDS}
[snapshots]
retain = 5
lease_seconds = 1.0
[telemetry]
http_port = 0
"""


@dataclass
class Cluster:
    """Broker, store, proxy before the store, and the workers; a context manager."""

    folder: Path
    tokenizer: Path
    most_workers: int
    faketime: Path | None
    workers: list[Worker] = field(default_factory=list)
    gone: list[Worker] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    ended_unbegun: int = 0
    _stack: ExitStack = field(default_factory=ExitStack)
    _names: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Cluster:
        with ExitStack() as stack:
            self.broker = stack.enter_context(KafkaBroker())
            self.redis = stack.enter_context(RedisServer())
            self.proxy = stack.enter_context(SlowProxy(self.redis.port))
            stack.callback(self._kill_all)
            for topic, partitions in TOPICS.items():
                self.broker.create_topic(topic, partitions)
            self.file = self.folder / "streamfreq.toml"
            self.file.write_text(
                configuration(self.broker.bootstrap, self.proxy.port, self.tokenizer)
            )
            threading.Thread(target=self._scrape, name="scrape", daemon=True).start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._stack.close()

    def start_worker(self, *, own_clock: bool = False) -> Worker:
        """One more; it is not waited for."""
        self._names += 1
        faketime = self.faketime if own_clock else None
        worker = Worker(self.folder, self.file, f"worker-{self._names}", faketime)
        self.workers.append(worker)
        return worker

    def wait_until_ready(self, worker: Worker) -> None:
        """Raises ChaosError when it is not ready in time."""
        deadline = time.monotonic() + START_SECONDS
        while not worker.ready():
            if worker.exit_code is not None or time.monotonic() > deadline:
                raise ChaosError(f"{worker.name} did not become ready: {worker.log()[-2000:]}")
            time.sleep(0.1)

    def wait_until_settled(self) -> None:
        """Until the workers share all partitions among them; raises ChaosError when they don't."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            for worker in self.workers:
                worker.scrape()
            shared = [worker.figures.partitions for worker in self.workers]
            if all(shared) and sum(shared) == sum(TOPICS.values()):
                return
            if time.monotonic() > deadline:
                names = ", ".join(worker.name for worker in self.workers)
                raise ChaosError(f"{names} do not share all partitions but have {shared}")
            time.sleep(0.2)

    def kill(self, worker: Worker) -> None:
        """SIGKILL, and forget it."""
        worker.scrape()
        worker.send(signal.SIGKILL)
        self.expect_end(worker, -signal.SIGKILL, 10)

    def terminate(self, worker: Worker) -> None:
        """SIGTERM; an end that is not orderly is a violation.

        A process takes a moment until it handles signals, and before that the signal just ends it:
        allowed while it has not said a word, and counted.
        """
        worker.scrape()
        worker.send(signal.SIGTERM)
        unbegun = worker.wait(END_SECONDS) == -signal.SIGTERM and not worker.log()
        self.ended_unbegun += unbegun
        self.expect_end(worker, -signal.SIGTERM if unbegun else 0, 0)

    def expect_end(self, worker: Worker, wanted: int, seconds: float) -> None:
        """Wait for its end, and forget it; an end with another exit code is a violation."""
        code = worker.wait(seconds)
        if code != wanted:
            how = "it still runs" if code is None else f"it ended with {code}"
            self.violations.append(f"{worker.name} was to end with {wanted}, but {how}")
            worker.send(signal.SIGKILL)
            worker.wait(10)
        self._forget(worker)

    def check_alive(self) -> None:
        """A worker that ended by itself is a violation, and is replaced."""
        for worker in [one for one in self.workers if one.exit_code is not None]:
            self._forget(worker)
            last = worker.log().strip().splitlines()[-1:]
            self.violations.append(f"{worker.name} ended by itself: {worker.exit_code} {last}")
            self.start_worker()

    def everyone(self) -> list[Worker]:
        """Those that run and those that are gone."""
        return [*self.gone, *self.workers]

    def ends(self) -> dict[TopicPartition, int]:
        """The offset behind the last record of every partition."""
        return {
            TopicPartition(topic, partition): end
            for topic in TOPICS
            for partition, end in self.broker.end_offsets(topic).items()
        }

    def _forget(self, worker: Worker) -> None:
        self.workers.remove(worker)
        self.gone.append(worker)

    def _kill_all(self) -> None:
        for worker in self.workers:
            worker.send(signal.SIGKILL)
            worker.wait(10)

    def _scrape(self) -> None:
        while not self._ended.wait(SCRAPE_SECONDS):
            for worker in list(self.workers):
                worker.scrape()


def faketime_library() -> Path | None:
    """The library that gives a process a clock of its own, where it is installed and works."""
    try:
        import libfaketime
    except ImportError:
        return None
    for library in Path(libfaketime.__file__).parent.rglob("libfaketime.so.1"):
        environment = {**os.environ, "LD_PRELOAD": str(library), "FAKETIME": "-2h"}
        probe = "import time; print(time.time())"
        done = subprocess.run(
            [sys.executable, "-c", probe], env=environment, capture_output=True, text=True
        )
        if done.returncode == 0 and time.time() - float(done.stdout) > 3_600:
            return library
    return None
