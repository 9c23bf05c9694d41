"""One `streamfreq run` as a process: its log, its metrics, its armed fault, its clock."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import psutil

from streamfreq.faults import VARIABLE
from tests.services.with_parent import with_parent

_SAMPLE = re.compile(r"^(streamfreq_\w+?)(?:\{[^}]*\})? ([0-9.eE+-]+|NaN)$", re.MULTILINE)


@dataclass
class Figures:
    """What a worker's metrics said last."""

    records: float = 0
    conflicts: float = 0
    losses: float = 0
    commits: float = 0
    partitions: float = 0


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
            self.set_clock("+0s")
            environment |= {
                "LD_PRELOAD": str(faketime),
                "FAKETIME_TIMESTAMP_FILE": str(self.clock_file),
                "FAKETIME_NO_CACHE": "1",
                "DONT_FAKE_MONOTONIC": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(
                with_parent([sys.executable, "-m", "streamfreq", "run", "-c", file]),
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

    def set_clock(self, jump: str) -> None:
        """Its wall clock goes ahead or behind by this from now on ("+2h"), if it has its own."""
        new = self.clock_file.with_suffix(".new")
        new.write_text(f"{jump}\n")
        new.replace(self.clock_file)  # it is read at every look at the clock, never half written

    def stopped(self) -> bool:
        """Whether SIGSTOP has stopped it."""
        try:
            return str(psutil.Process(self.pid).status()) == psutil.STATUS_STOPPED
        except psutil.Error:
            return False

    def said(self, words: str, since: int = 0) -> bool:
        """Whether its log has these words behind the first `since` characters."""
        return words in self.log()[since:]

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
            partitions=sums.get("streamfreq_partitions_assigned", 0),
        )
        if self.figures.records and not self.first_rss_mb:
            self.first_rss_mb = self.rss_mb()

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
