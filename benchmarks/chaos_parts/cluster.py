"""The services and the worker processes of a trial."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

import psutil

from streamfreq.faults import VARIABLE
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

_SAMPLE = re.compile(r"^(streamfreq_\w+?)(?:\{[^}]*\})? ([0-9.eE+-]+|NaN)$", re.MULTILINE)


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
[telemetry]
http_port = 0
"""


@dataclass
class Figures:
    """What a worker's metrics said last."""

    records: float = 0
    conflicts: float = 0
    losses: float = 0
    commits: float = 0


class Worker:
    """One `streamfreq run`, with its log, its armed fault and perhaps a clock of its own."""

    def __init__(self, folder: Path, file: Path, name: str, faketime: Path | None = None) -> None:
        self.name = name
        self.figures = Figures()
        self.fault_file = folder / f"{name}.fault"
        self.clock_file = folder / f"{name}.clock"
        self.log_file = folder / f"{name}.log"
        self.started = time.monotonic()
        self.first_rss_mb = 0.0
        environment = {**os.environ, "OMP_NUM_THREADS": "1", VARIABLE: str(self.fault_file)}
        if faketime is not None:
            self.clock_file.write_text("+0s\n")
            environment |= {
                "LD_PRELOAD": str(faketime),
                "FAKETIME_TIMESTAMP_FILE": str(self.clock_file),
                "FAKETIME_NO_CACHE": "1",
                "DONT_FAKE_MONOTONIC": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "streamfreq", "run", "-c", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the trial, which ends them
            )
        self._port = 0

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def send(self, number: int) -> None:
        """A signal, if it still runs."""
        if self.exit_code is None:
            self._process.send_signal(number)

    def wait(self, seconds: float) -> int | None:
        """Its exit code; None when it still runs after that time."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def ready(self) -> bool:
        """Whether it says that it is ready."""
        try:
            return self._get("/readyz") is not None
        except (OSError, HTTPException):
            return False

    def scrape(self) -> None:
        """Read its metrics; what can't be read leaves the figures as they are."""
        try:
            text = self._get("/metrics")
        except (OSError, HTTPException):  # it may die while it answers
            return
        if text is None:
            return
        sums: dict[str, float] = {}
        for name, value in _SAMPLE.findall(text):
            sums[name] = sums.get(name, 0.0) + float(value)
        self.figures = Figures(
            records=sums.get("streamfreq_records_total", 0),
            conflicts=sums.get("streamfreq_commit_conflicts_total", 0),
            losses=sums.get("streamfreq_checkpoint_losses_total", 0),
            commits=sums.get("streamfreq_commits_total", 0),
        )

    def rss_mb(self) -> float:
        """Resident memory."""
        try:
            return psutil.Process(self.pid).memory_info().rss / 1e6
        except psutil.Error:
            return 0.0

    def log(self) -> str:
        """All that it said."""
        return self.log_file.read_text(errors="replace")

    def _get(self, path: str) -> str | None:
        if not self._port:
            found = re.search(r"http://127\.0\.0\.1:(\d+)", self.log())
            if found is None:
                return None
            self._port = int(found[1])
        url = f"http://127.0.0.1:{self._port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=1) as answer:
                text: str = answer.read().decode()
                return text
        except urllib.error.HTTPError:
            return None


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

    def kill(self, worker: Worker) -> None:
        """SIGKILL, and forget it."""
        worker.scrape()
        worker.send(signal.SIGKILL)
        worker.wait(10)
        self._forget(worker)

    def terminate(self, worker: Worker) -> None:
        """SIGTERM; an end that is not orderly is a violation."""
        worker.scrape()
        worker.send(signal.SIGTERM)
        code = worker.wait(END_SECONDS)
        if code != 0:
            self.violations.append(f"{worker.name}: SIGTERM ended it with {code}")
            worker.send(signal.SIGKILL)
            worker.wait(10)
        self._forget(worker)

    def take_dead(self) -> list[Worker]:
        """Workers that have ended, which are forgotten."""
        dead = [worker for worker in self.workers if worker.exit_code is not None]
        for worker in dead:
            self._forget(worker)
        return dead

    def check_alive(self) -> None:
        """A worker that ended by itself is a violation, and is replaced."""
        for worker in self.take_dead():
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
