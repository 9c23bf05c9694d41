"""`streamfreq run` as its user starts it: a process, signals, exit codes, HTTP, secrets."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamfreq.config import RedisConfig, SnapshotsConfig
from streamfreq.snapshots import open_snapshots
from tests.integration.harness import end_all, http_get
from tests.services.kafka import PASSWORD, USER, KafkaBroker

pytestmark = pytest.mark.redis_server

Start = Callable[..., "Run"]


class Run:
    """A daemon process and its log."""

    def __init__(self, folder: Path, text: str, *options: str) -> None:
        self.file = folder / "streamfreq.toml"
        self.file.write_text(text)
        self.log_file = folder / f"log-{time.monotonic_ns()}"
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "streamfreq", "run", "-c", str(self.file), *options],
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def wait(self, seconds: float = 60) -> int:
        return self.process.wait(seconds)

    def wait_for_log(self, pattern: str, seconds: float = 60) -> re.Match[str]:
        deadline = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.log)
            if found:
                return found
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)

    def get(self, path: str) -> tuple[int, str]:
        port = self.wait_for_log(r"metrics and health on http://127.0.0.1:(\d+)")[1]
        return http_get(f"http://127.0.0.1:{port}{path}")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    runs: list[Run] = []

    def make(text: str, *options: str) -> Run:
        runs.append(Run(tmp_path, text, *options))
        return runs[-1]

    yield make
    end_all(run.process for run in runs)


def files_config(tmp_path: Path, redis: RedisConfig, rows: int, rate: float = 0) -> str:
    stream = tmp_path / "stream.jsonl"
    lines = [json.dumps({"ts": 1_700_000_000_000 + n, "text": f"word{n % 7}"}) for n in range(rows)]
    stream.write_text("\n".join(lines) + "\n")
    return f"""
job = "files"
[source]
kind = "files"
[files]
paths = [{json.dumps(str(stream))}]
records_per_second = {rate}
[value]
format = "json"
time_field = "ts"
[counting]
half_lives = ["1h", "inf"]
device = "cpu"
[redis]
url = "{redis.url}"
prefix = "{redis.prefix}"
[schedule]
commit_interval_seconds = 0.3
publish_interval_seconds = 0.5
[telemetry]
http_port = 0
"""


def published(redis: RedisConfig, job: str) -> tuple[int, float]:
    """The latest version and its plain number of tokens."""
    snapshot = open_snapshots(redis, SnapshotsConfig(), job).load()
    return (0, 0.0) if snapshot is None else (snapshot.version, float(snapshot.tokens_H[-1]))


def test_until_caught_up_counts_everything_and_ends_with_0(
    start: Start, tmp_path: Path, one_redis_config: RedisConfig
) -> None:
    run = start(files_config(tmp_path, one_redis_config, 1_000), "--until-caught-up")
    assert run.wait() == 0, run.log
    assert published(one_redis_config, "files")[1] == 1_000


def test_sigterm_commits_and_the_next_run_goes_on_there(
    start: Start, tmp_path: Path, one_redis_config: RedisConfig
) -> None:
    text = files_config(tmp_path, one_redis_config, 3_000, rate=1_000)
    run = start(text)
    run.wait_for_log("published snapshot 1")
    assert run.get("/healthz") == (200, "ok\n")
    status, metrics = run.get("/metrics")
    assert status == 200
    assert 'streamfreq_records_total{topic="' in metrics
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 0, run.log
    assert "Traceback" not in run.log
    again = start(text, "--until-caught-up")
    assert again.wait() == 0, again.log
    restored = re.search(r"next offset (\d+)", again.log)
    assert restored is not None
    assert 0 < int(restored[1]) <= 3_000
    assert published(one_redis_config, "files")[1] == 3_000


def test_a_second_signal_ends_it_at_once_and_loses_nothing(
    start: Start, tmp_path: Path, one_redis_config: RedisConfig
) -> None:
    text = files_config(tmp_path, one_redis_config, 2_000, rate=1_000)
    run = start(text)
    run.wait_for_log("published snapshot 1")
    run.process.send_signal(signal.SIGINT)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait(10) in (0, 128 + signal.SIGTERM)
    assert start(text, "--until-caught-up").wait() == 0
    assert published(one_redis_config, "files")[1] == 2_000


def test_kill_at_any_moment_counts_every_record_once(
    start: Start, tmp_path: Path, one_redis_config: RedisConfig
) -> None:
    text = files_config(tmp_path, one_redis_config, 4_000, rate=2_000)
    for seconds in (0.1, 0.45, 0.7):
        run = start(text)
        run.wait_for_log("assigned")
        time.sleep(seconds)
        run.process.kill()
        run.wait()
    last = start(text, "--until-caught-up")
    assert last.wait() == 0, last.log
    assert published(one_redis_config, "files")[1] == 4_000


def test_another_tokenizer_on_the_same_job_is_refused_in_one_line(
    start: Start, tmp_path: Path, one_redis_config: RedisConfig
) -> None:
    text = files_config(tmp_path, one_redis_config, 10)
    assert start(text, "--until-caught-up").wait() == 0
    run = start(text, "--until-caught-up", "--set", "tokenizer.words_seed=1")
    assert run.wait() == 4, run.log
    assert "Traceback" not in run.log
    assert re.search(r"checkpoint of .*counted with tokenizer .*another `job` name", run.log)


def test_no_store_waits_and_says_so(start: Start, tmp_path: Path) -> None:
    redis = RedisConfig(url="redis://127.0.0.1:1/0")
    run = start(files_config(tmp_path, redis, 10), "--set", "redis.timeout_ms=200")
    run.wait_for_log("waits for its checkpoint: .*127.0.0.1:1")
    deadline = time.monotonic() + 20
    while "wait for their checkpoint" not in (answer := run.get("/readyz"))[1]:
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)
    assert answer[0] == 503
    run.process.send_signal(signal.SIGTERM)
    assert run.wait(40) == 0, run.log
    assert "Traceback" not in run.log


@pytest.mark.broker
def test_sasl_and_tls_pass_through_and_secrets_never_show(
    start: Start,
    kafka_broker: KafkaBroker,
    new_topic: Callable[..., str],
    one_redis_config: RedisConfig,
) -> None:
    topic = new_topic(partitions=2)
    kafka_broker.produce(topic, [b"one", b"two"])
    text = f"""
job = "secure"
[kafka]
bootstrap_servers = ["{kafka_broker.secure_bootstrap}"]
topics = ["{topic}"]
security_protocol = "SASL_SSL"
sasl_mechanism = "PLAIN"
sasl_username = "{USER}"
sasl_password = "{PASSWORD}"
ssl_cafile = "{kafka_broker.cafile}"
options = {{ client_rack = "here" }}
[counting]
half_lives = ["inf"]
device = "cpu"
[redis]
url = "{one_redis_config.url}"
prefix = "{one_redis_config.prefix}"
[telemetry]
http_port = -1
log_level = "DEBUG"
"""
    run = start(text, "--until-caught-up")
    assert run.wait() == 0, run.log
    assert published(one_redis_config, "secure")[1] == 2
    shown = subprocess.run(
        [sys.executable, "-m", "streamfreq", "run", "-c", str(run.file), "--show-config"],
        capture_output=True,
        text=True,
        check=True,
    )
    wrong = start(text.replace(PASSWORD, PASSWORD + "wrong"), "--until-caught-up")
    wrong.wait_for_log("refused the login")
    for output in (run.log, shown.stdout, wrong.log):
        assert PASSWORD not in output
