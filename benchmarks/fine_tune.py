"""A pretrained model on a real stream, with live weights and without, side by side.

    python -m benchmarks.fine_tune MODEL STREAM.jsonl.gz --every 20 --seconds 500

Each run replays the same records through `streamfreq run` (which counts them) and
`streamfreq-trainer run` (which learns them) at the same pace, with a real store between them: once
with live token weights, once with `loss.kind = "plain"`. What is compared is the prequential loss:
each new token is scored before it is learned. Bands are those of the weighted run's snapshots; the
plain run follows the same snapshots for its bands and does not use them.

Prints a table over the quarters of the run, and what it cost. `--json` prints one line instead.
"""

from __future__ import annotations

import argparse
import gzip
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.services.redis import RedisServer
from trainer.monitors.bands import NAMES
from trainer.monitors.history import read_history

KINDS = ("weighted", "plain")


def sample(stream: Path, every: int, target: Path) -> int:
    """Every n-th row of a gzipped JSON-lines file; how many."""
    with gzip.open(stream, "rb") as rows, target.open("wb") as file:
        kept = [row for number, row in enumerate(rows) if number % every == 0]
        file.writelines(kept)
    return len(kept)


def daemon_toml(records: Path, model: Path, rate: float, url: str, half_lives: str) -> str:
    return f"""
job = "experiment"
[source]
kind = "files"
[files]
paths = ["{records}"]
records_per_second = {rate}
[value]
format = "json"
time_field = "ts"
[tokenizer]
path = "{model}"
[counting]
half_lives = [{", ".join(f'"{item}"' for item in half_lives.split(","))}]
device = "cpu"
[redis]
url = "{url}"
[schedule]
commit_interval_seconds = 2
publish_interval_seconds = 4
[telemetry]
http_port = -1
"""


def trainer_toml(records: Path, model: Path, rate: float, url: str, output: Path, kind: str) -> str:
    return f"""
name = "{kind}"
output = "{output}"
[source]
kind = "files"
[files]
paths = ["{records}"]
records_per_second = {rate}
[value]
format = "json"
[redis]
url = "{url}"
[subscriber]
job = "experiment"
pull_interval_seconds = 4
[model]
path = "{model}"
[loss]
kind = "{kind}"
[replay]
share = 0.25
[monitors]
log_interval_steps = 2
[save]
interval_steps = 1000
"""


def run(
    kind: str, folder: Path, records: Path, rate: float, options: argparse.Namespace
) -> dict[str, Any]:
    """One daemon and one trainer over the whole sample."""
    with RedisServer() as store:
        daemon_file, trainer_file = folder / f"{kind}-daemon.toml", folder / f"{kind}.toml"
        output = folder / kind
        daemon_file.write_text(
            daemon_toml(records, options.model, rate, store.url, options.half_lives)
        )
        trainer_file.write_text(trainer_toml(records, options.model, rate, store.url, output, kind))
        settings = [word for item in options.set for word in ("--set", item)]
        with (folder / f"{kind}.log").open("wb") as log:
            daemon = subprocess.Popen(
                [sys.executable, "-m", "streamfreq", "run", "-c", str(daemon_file)], stderr=log
            )
            begun = time.monotonic()
            words = [sys.executable, "-m", "trainer", "run", "-c", str(trainer_file), *settings]
            trainer = subprocess.Popen(words, stderr=log)
            peak = watch(trainer)
            seconds = time.monotonic() - begun
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(60)
        if trainer.returncode:
            raise SystemExit((folder / f"{kind}.log").read_text())
    intervals = list(read_history(output / "metrics.jsonl"))
    return {
        "seconds": round(seconds),
        "peak_mb": round(peak / 1e6),
        "steps": intervals[-1]["step"],
        "tokens": intervals[-1]["tokens"],
        "snapshots": len({item["version"] for item in intervals} - {0}),
        "quarters": [table(part) for part in quarters(intervals)],
    }


def watch(process: subprocess.Popen[bytes]) -> int:
    """Wait for its end; its largest resident memory, bytes."""
    peak = 0
    child = psutil.Process(process.pid)
    while process.poll() is None:
        try:
            peak = max(peak, child.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.5)
    process.wait()
    return peak


def quarters(intervals: Sequence[Any]) -> list[Sequence[Any]]:
    size = len(intervals)
    return [intervals[size * part // 4 : size * (part + 1) // 4] for part in range(4)]


def table(intervals: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Mean prequential loss by band and over all of them but special tokens."""
    sums: dict[str, list[float]] = {}
    for item in intervals:
        for name, band in item["prequential_bands"].items():
            entry = sums.setdefault(name, [0.0, 0.0])
            entry[0] += band["loss"] * band["tokens"]
            entry[1] += band["tokens"]
    text = {name: entry for name, entry in sums.items() if name != "special"}
    whole = [sum(entry[part] for entry in text.values()) for part in range(2)]
    means = {name: entry[0] / entry[1] for name, entry in text.items()}
    return {"all": whole[0] / max(whole[1], 1), **means}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("stream", type=Path)
    parser.add_argument("--every", type=int, default=1, help="take every n-th record")
    parser.add_argument("--seconds", type=float, default=300, help="length of the replay")
    parser.add_argument("--half-lives", default="30d,720d,inf")
    parser.add_argument("--set", action="append", default=[], help="for the trainer; repeatable")
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    options.model, options.stream = options.model.resolve(), options.stream.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        count = sample(options.stream, options.every, folder / "records.jsonl")
        rate = count / options.seconds
        results = {
            kind: run(kind, folder, folder / "records.jsonl", rate, options) for kind in KINDS
        }
    if options.as_json:
        print(json.dumps({"records": count, **results}))
        return
    print(f"{count:,} records of {options.stream.name}, {rate:.2f} a second")
    for kind, result in results.items():
        print(
            f"{kind}: {result['steps']:,} steps, {result['tokens']:,} tokens, "
            f"{result['seconds']} s, {result['peak_mb']:,} MB, {result['snapshots']} snapshots"
        )
    print("prequential loss, nats a token: weighted / plain")
    bands = ["all", *(name for name in NAMES if name != "special")]
    print("| quarter | " + " | ".join(bands) + " |")
    print("|---|" + "---|" * len(bands))
    for number in range(4):
        pairs = [[results[kind]["quarters"][number].get(band) for kind in KINDS] for band in bands]
        cells = [
            " / ".join("-" if value is None else f"{value:.2f}" for value in pair) for pair in pairs
        ]
        print(f"| {number + 1} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
