"""The daemon's memory over time, on a real broker and store, fed with ever new words.

    python -m benchmarks.soak --minutes 20

Twelve partitions, three half-lives with document counts, a vocabulary of about 128,000 ids. Every
record is a real paragraph with words in it that never come twice, which is what makes a tokenizer's
caches grow. Prints the resident memory of the daemon process every few seconds, beside what the
same interpreter holds with torch and the tokenizer loaded but no stream, and at the end the level
of the last fifth against the second fifth. `--json` prints one line instead.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from itertools import cycle
from pathlib import Path

import psutil
from kafka import KafkaProducer

from streamfreq.cli.demo.parts import default_tokenizer
from streamfreq.cli.demo.text import documentation
from tests.services.kafka import KafkaBroker
from tests.services.redis import RedisServer

PARTITIONS = 12
TOPIC = "soak"

IDLE = """
import sys, psutil
from streamfreq.config import TokenizerConfig
from streamfreq.tokenization import load_tokenizer
import torch, streamfreq.daemon.build
print(psutil.Process().memory_info().rss)
tokenizer = load_tokenizer(TokenizerConfig(path=sys.argv[1]))
tokenizer.encode_batch(["warm"])
print(psutil.Process().memory_info().rss)
"""


def config_text(broker: str, redis: str, tokenizer: str) -> str:
    """A configuration with the default schedule, as a user would have it."""
    return f"""
job = "soak"
[kafka]
bootstrap_servers = ["{broker}"]
topics = ["{TOPIC}"]
[tokenizer]
path = {json.dumps(tokenizer)}
[counting]
half_lives = ["5m", "1h", "24h"]
device = "cpu"
[redis]
url = "{redis}"
[telemetry]
http_port = -1
"""


class Feeder(threading.Thread):
    """Produces real paragraphs with new words in them, at a steady rate."""

    def __init__(self, broker: str, records_per_second: float) -> None:
        super().__init__(daemon=True)
        self._producer = KafkaProducer(
            bootstrap_servers=broker, linger_ms=50, compression_type="gzip"
        )
        self._rate = records_per_second
        self.ending = threading.Event()
        self.sent = 0

    def run(self) -> None:
        random_words = random.Random(1)
        begun = time.monotonic()
        for text in cycle(list(documentation())):
            if self.ending.is_set():
                break
            new = " ".join(
                "".join(random_words.choices("abcdefghijklmnopqrstuvwxyz", k=12)) for _ in range(8)
            )
            self._producer.send(TOPIC, f"{text} {new}".encode())
            self.sent += 1
            ahead = self.sent / self._rate - (time.monotonic() - begun)
            if ahead > 0.05:
                self.ending.wait(ahead)
        self._producer.close()


def idle_bytes(tokenizer: str) -> tuple[int, int]:
    """Resident memory with everything imported: without and with the tokenizer."""
    out = subprocess.run(
        [sys.executable, "-c", IDLE, tokenizer], check=True, capture_output=True, text=True
    ).stdout.split()
    return int(out[0]), int(out[1])


def soak(minutes: float, rate: float, quiet: bool) -> dict[str, float]:
    """Run it; the figures in MB."""
    tokenizer = default_tokenizer()
    bare, loaded = idle_bytes(tokenizer)
    samples: list[float] = []
    with KafkaBroker() as broker, RedisServer() as redis, tempfile.TemporaryDirectory() as folder:
        broker.create_topic(TOPIC, PARTITIONS)
        file = Path(folder, "streamfreq.toml")
        file.write_text(config_text(broker.bootstrap, redis.url, tokenizer))
        command = [sys.executable, "-m", "streamfreq", "run", "-c", str(file)]
        with open(Path(folder, "log"), "wb") as log:
            daemon = subprocess.Popen(command, stderr=log)
        feeder = Feeder(broker.bootstrap, rate)
        feeder.start()
        try:
            process = psutil.Process(daemon.pid)
            end = time.monotonic() + minutes * 60
            while time.monotonic() < end:
                time.sleep(5)
                assert daemon.poll() is None, Path(folder, "log").read_text()[-2000:]
                samples.append(process.memory_info().rss / 1e6)
                if not quiet and len(samples) % 6 == 0:
                    print(f"{len(samples) * 5:6d} s  {samples[-1]:8.0f} MB  {feeder.sent:10,} sent")
        finally:
            feeder.ending.set()
            feeder.join(10)
            daemon.terminate()
            daemon.wait(40)
    fifth = max(1, len(samples) // 5)
    return {
        "imports_mb": bare / 1e6,
        "tokenizer_mb": (loaded - bare) / 1e6,
        "peak_mb": max(samples),
        "peak_beside_tokenizer_mb": max(samples) - (loaded - bare) / 1e6,
        "second_fifth_mb": statistics.median(samples[fifth : 2 * fifth]),
        "last_fifth_mb": statistics.median(samples[-fifth:]),
        "records": feeder.sent,
        "minutes": minutes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--rate", type=float, default=1500, help="records a second")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = soak(args.minutes, args.rate, args.json)
    if args.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:>26}  {value:12,.1f}")


if __name__ == "__main__":
    main()
