"""From a record in Kafka to the weight used in a loss: how long it takes.

    python -m benchmarks.freshness --minutes 2

A real broker and store, `streamfreq run` as a process of its own, and a training loop in this one
that follows the snapshots with `TokenWeights.follow` and takes a weighted loss at each step. While
ordinary text goes through the topic, probes go with it at random moments: records with a word that
was never there before. A probe has arrived when the loss of that word differs from the loss of one
that never comes. The time runs from the call that hands the record to the producer.

The bound is one publish interval + one pull interval + 1 s. `--json` prints one line instead.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from streamfreq.cli.demo.text import documentation
from streamfreq.config import TokenizerConfig
from streamfreq.sources.kafka import TopicWriter
from streamfreq.tokenization import load_tokenizer
from streamfreq.tokenization.base import Tokenizer
from tests.services.kafka import KafkaBroker
from tests.services.redis import RedisServer
from trainer.losses import weighted_cross_entropy
from trainer.token_weights import TokenWeights

TOPIC = "freshness"
STEP_SECONDS = 0.05
PROBE_EVERY_SECONDS = 0.4
TEXTS_PER_SECOND = 100
TIMES = 8
"""So often a probe's word stands in its record."""
START_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Probe:
    """A word, its token, and when it was handed to the producer."""

    token_id: int
    sent: float


class Loop:
    """A training loop in little: at each step the newest weights, then a loss per probe."""

    def __init__(self, weights: TokenWeights, tokenizer: Tokenizer, unheard: int) -> None:
        self._weights = weights
        self._logits_1V = torch.zeros((1, tokenizer.vocab_size))
        self._unheard = unheard
        self.steps = 0

    def arrived(self, probes: list[Probe]) -> list[Probe]:
        """One step; the probes whose loss is no longer that of a word that never came."""
        self._weights.refresh()
        self.steps += 1
        never = self._loss(self._unheard)
        return [probe for probe in probes if self._loss(probe.token_id) != never]

    def _loss(self, token_id: int) -> float:
        target_1 = torch.tensor([token_id])
        weights_V = self._weights.weights
        return float(weighted_cross_entropy(self._logits_1V, target_1, weights_V, denominator=1.0))


def words(tokenizer: Tokenizer) -> list[int]:
    """Tokens that the text never holds, shuffled; each of a word `probeN`."""
    texts = list(documentation())
    seen = set(tokenizer.encode_batch(texts).ids_N.tolist())
    ids = tokenizer.encode_batch([word(n) for n in range(20_000)]).ids_N.tolist()
    return [id_ if id_ not in seen and ids.count(id_) == 1 else -1 for id_ in ids[:3_000]]


def word(number: int) -> str:
    return f"probe{number}"


def daemon_toml(broker: KafkaBroker, store: RedisServer, publish: float) -> str:
    return f"""
job = "freshness"
[kafka]
bootstrap_servers = ["{broker.bootstrap}"]
topics = ["{TOPIC}"]
[redis]
url = "{store.url}"
[schedule]
publish_interval_seconds = {publish}
[telemetry]
http_port = -1
"""


def measure(minutes: float, publish: float, pull: float, seed: int) -> dict[str, float]:
    tokenizer = load_tokenizer(TokenizerConfig(path="words"))
    free = words(tokenizer)
    texts = [text.encode() for text in documentation()]
    chance = random.Random(seed)
    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaBroker() as broker,
        RedisServer() as store,
    ):
        file = Path(folder) / "streamfreq.toml"
        file.write_text(daemon_toml(broker, store, publish))
        writer = TopicWriter(broker.bootstrap, TOPIC, partitions=6)
        with (Path(folder) / "daemon.log").open("wb") as log:
            daemon = subprocess.Popen(
                [sys.executable, "-m", "streamfreq", "run", "-c", str(file)], stderr=log
            )
        weights = TokenWeights.follow(
            store.url,
            "freshness",
            fingerprint=tokenizer.fingerprint,
            vocab_size=tokenizer.vocab_size,
            pull_interval_seconds=pull,
        )
        try:
            unheard = next(id_ for id_ in reversed(free) if id_ >= 0)
            loop = Loop(weights, tokenizer, unheard)
            latencies, missing = _run(loop, writer, texts, free, minutes, chance)
        finally:
            weights.close()
            writer.close()
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(30)
    latencies.sort()
    return {
        "p50_ms": round(1000 * statistics.median(latencies), 1),
        "p99_ms": round(1000 * latencies[min(len(latencies) - 1, int(0.99 * len(latencies)))], 1),
        "max_ms": round(1000 * latencies[-1], 1),
        "bound_ms": round(1000 * (publish + pull + 1)),
        "probes": len(latencies),
        "missing": missing,
        "steps": loop.steps,
    }


def _run(
    loop: Loop,
    writer: TopicWriter,
    texts: list[bytes],
    free: list[int],
    minutes: float,
    chance: random.Random,
) -> tuple[list[float], int]:
    """Feed and step; the latencies of the probes, and how many never arrived."""
    started, latencies, outstanding = time.monotonic(), [], list[Probe]()
    begun: float | None = None
    number, sent_texts, due = 0, 0, started
    while begun is None or time.monotonic() < begun + 60 * minutes or outstanding:
        now = time.monotonic()
        if begun is None and loop.steps and loop._weights.version:
            begun = now  # the daemon has published: from here on it counts
        if begun is None and now - started > START_SECONDS:
            raise SystemExit("no snapshot came: see the daemon's log")
        if begun is not None and now > begun + 60 * minutes + 60:
            break
        while sent_texts < (now - started) * TEXTS_PER_SECOND:
            writer.send(texts[sent_texts % len(texts)])
            sent_texts += 1
        if begun is not None and now >= due and now < begun + 60 * minutes:
            while free[number] < 0:
                number += 1
            writer.send(" ".join([word(number)] * TIMES).encode())
            outstanding.append(Probe(free[number], time.monotonic()))
            number += 1
            due = now + PROBE_EVERY_SECONDS * chance.uniform(0.5, 1.5)
        for probe in loop.arrived(outstanding):
            latencies.append(time.monotonic() - probe.sent)
            outstanding.remove(probe)
        time.sleep(STEP_SECONDS)
    return latencies, len(outstanding)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--publish", type=float, default=5.0, help="publish interval, seconds")
    parser.add_argument("--pull", type=float, default=2.0, help="pull interval, seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    result = measure(options.minutes, options.publish, options.pull, options.seed)
    if options.as_json:
        print(json.dumps(result))
        return
    print(f"publish every {options.publish:g} s, pull every {options.pull:g} s")
    print(f"{result['probes']} probes, {result['missing']} never arrived")
    print(f"p50 {result['p50_ms']:,.0f} ms, p99 {result['p99_ms']:,.0f} ms, ", end="")
    print(f"max {result['max_ms']:,.0f} ms, bound {result['bound_ms']:,} ms")


if __name__ == "__main__":
    main()
