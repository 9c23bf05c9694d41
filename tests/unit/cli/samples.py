"""Snapshots counted from small texts, and how the tests run commands."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from subprocess import CompletedProcess
from typing import Any

import numpy as np
from click.testing import CliRunner, Result

from streamfreq.cli import cli
from streamfreq.cli.recount import Recount
from streamfreq.clock import ManualClock
from streamfreq.codec import Snapshot
from streamfreq.config import RedisConfig
from streamfreq.config.load import load_config
from streamfreq.records import RecordBatch, TopicPartition
from streamfreq.tokenization import load_tokenizer

STREAMFREQ = [sys.executable, "-c", "from streamfreq.cli import main; main()"]
HOUR_MS = 3_600_000
OLD = ["the cat sat on the mat"] * 40 + ["the dog"] * 20
NEW = ["the comet returns tonight"] * 10
SETTINGS = ("tokenizer.words_buckets_log2=12", "counting.half_lives=1h,inf")


def counted(
    texts: Sequence[str], times_ms: Sequence[int], settings: Sequence[str] = SETTINGS
) -> Snapshot:
    """A snapshot of records with these texts at these times."""
    config = load_config(None, overrides=settings, env={}, needs_source=False)
    tokenizer = load_tokenizer(config.tokenizer)
    clock = ManualClock(max(times_ms) + HOUR_MS)
    recount = Recount(config, config.counting.horizons_seconds, tokenizer, clock)
    values: list[bytes | None] = [text.encode() for text in texts]
    offsets = np.arange(len(values))
    times = np.array(times_ms, np.int64)
    partition = TopicPartition("topic", 0)
    recount.add(RecordBatch(partition, offsets, times, values, len(values)), "text")
    return recount.snapshot(None, config.weights)


def early() -> Snapshot:
    """Only the old texts."""
    return counted(OLD, [1_000] * len(OLD))


def late() -> Snapshot:
    """The old texts, and many hours later the new ones."""
    return counted([*OLD, *NEW], [1_000] * len(OLD) + [10 * HOUR_MS] * len(NEW))


def store_arguments(config: RedisConfig) -> list[str]:
    """The options that lead a command to the store."""
    arguments = ["--redis", config.url, "--set", f"redis.prefix={config.prefix}", "--job", "j"]
    arguments += ["--set", "tokenizer.words_buckets_log2=12"]
    if config.cluster:
        arguments += ["--set", "redis.cluster=true"]
    return arguments


def invoke(*arguments: object, env: dict[str, str] | None = None, stdin: bytes = b"") -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], input=stdin, env=env)


def run_process(*arguments: object, stdin: bytes = b"") -> CompletedProcess[str]:
    """Run a command in a process of its own."""
    words = [str(argument) for argument in arguments]
    done = subprocess.run([*STREAMFREQ, *words], input=stdin, capture_output=True, check=False)
    return CompletedProcess(words, done.returncode, done.stdout.decode(), done.stderr.decode())


def json_lines(result: Result | CompletedProcess[str]) -> list[Any]:
    """What a command with --json printed: every line of stdout is JSON."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def statuses(result: Result | CompletedProcess[str]) -> dict[str, str]:
    """What `check --json` found, by check."""
    return {line["check"]: line["status"] for line in json_lines(result)}


def settings(*values: str) -> list[str]:
    """Each value as a --set option."""
    return [item for value in values for item in ("--set", value)]
