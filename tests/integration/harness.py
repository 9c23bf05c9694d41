"""Runs whole daemons in this process, and says what they should have counted."""

from __future__ import annotations

import gzip
import json
import subprocess
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from streamfreq.codec import Snapshot
from streamfreq.config import Config
from streamfreq.daemon.build import build_daemon
from streamfreq.daemon.daemon import Daemon
from streamfreq.snapshots import open_snapshots


def read_stream(path: Path, limit: int) -> list[dict[str, Any]]:
    """The first `limit` rows of a gzipped JSON-lines stream."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line, _ in zip(lines, range(limit), strict=False)]


def spread(rows: Sequence[Any], every: int) -> list[Any]:
    """Every n-th row, so that a short sample still covers a stream's whole time."""
    return list(rows[::every])


def daemon_config(job: str | None = None, **sections: Any) -> Config:
    """A configuration with fast schedules and no HTTP port; sections as keyword arguments."""
    defaults: dict[str, dict[str, Any]] = {
        "schedule": {"commit_interval_seconds": 0.3, "publish_interval_seconds": 0.5},
        "snapshots": {"lease_seconds": 2.0},
        "telemetry": {"http_port": -1},
        "counting": {"half_lives": ["1h", "720h", "inf"], "device": "cpu"},
    }
    for name, values in sections.items():
        defaults[name] = {**defaults.get(name, {}), **values}
    return Config.model_validate({"job": job or f"job-{uuid.uuid4().hex[:8]}", **defaults})


RUNNING: list[RunningDaemon] = []
"""Every daemon that a test started; a fixture ends those that a failed test left."""


class RunningDaemon:
    """A daemon in a thread; `join` raises what ended it."""

    def __init__(self, config: Config, *, until_caught_up: bool = False) -> None:
        self.daemon: Daemon = build_daemon(config)
        self.error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, args=(until_caught_up,), name=f"daemon-{config.job}", daemon=True
        )
        RUNNING.append(self)
        self._thread.start()

    def _run(self, until_caught_up: bool) -> None:
        try:
            self.daemon.run(until_caught_up=until_caught_up)
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        """End in order and wait for it."""
        self.daemon.stop()
        self.join()

    def end(self) -> None:
        """Stop without asking how it went."""
        self.daemon.stop()
        self._thread.join(10)

    def join(self, timeout_seconds: float = 90) -> None:
        """Wait for the end; raises the error that ended the daemon."""
        self._thread.join(timeout_seconds)
        assert not self._thread.is_alive(), "the daemon did not end"
        if self.error is not None:
            raise self.error


def catch_up(*configs: Config) -> None:
    """Run one daemon for each configuration side by side until all have caught up."""
    daemons = [RunningDaemon(config, until_caught_up=True) for config in configs]
    for daemon in daemons:
        daemon.join()


def latest(config: Config) -> Snapshot:
    """The job's latest snapshot."""
    snapshot = open_snapshots(config.redis, config.snapshots, config.job).load()
    assert snapshot is not None
    return snapshot


def http_get(url: str) -> tuple[int, str]:
    """Status and body, whatever the status is; raises OSError when nobody listens."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def end_all(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Kill those that a failed test left."""
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()
