"""What the weights cost a training step, and what the fused loss saves in memory.

    python -m benchmarks.trainer_overhead --steps 60

Two loops in one process take turns, step by step, each with its own copy of the same model: one
plain (no weights, no replay, no subscriber), one with everything on: token weights from a store in
which snapshots are published meanwhile, the subscriber's swap at each step, replayed rows drawn by
frequency, band losses. Both see as many tokens by the same loss path. The ratio is that of the
medians; the spread is the quartiles of the ratios of neighbouring steps.

The peak of the loss is that of a process of its own, above what it held before, in forward and
backward of head and loss. With a GPU it is the allocator's peak, and Liger's loss stands beside it
where it is installed. `--json` prints one line instead.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from streamfreq.clock import SystemClock
from streamfreq.codec import Snapshot
from streamfreq.config import SnapshotsConfig
from streamfreq.records import TopicPartition
from streamfreq.snapshots import open_snapshots
from tests.services.redis import RedisServer
from trainer.batches import Packer, Specials
from trainer.blocks import Batch, Block
from trainer.config import (
    LossConfig,
    ModelConfig,
    MonitorsConfig,
    OptimizerConfig,
    ReplayConfig,
    StepConfig,
    SubscriberConfig,
)
from trainer.losses import LanguageModelLoss, choose_path
from trainer.models import load_model
from trainer.monitors import Monitors, RunFacts
from trainer.replay import ReplayBuffer
from trainer.step import TrainStep, build_optimizer, build_schedule
from trainer.subscriber import SingleRank, Subscriber
from trainer.token_weights import Puller, Recipe, TokenTables

V = 50_257
BLOCK = 128
ROWS = 8
PUBLISH_SECONDS = 5.0
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def blocks(count: int, seed: int = 0) -> list[Block]:
    """Packed documents of Zipf tokens."""
    chance = np.random.default_rng(seed)
    packer = Packer(BLOCK, Specials(end_id=V - 1))
    made: list[Block] = []
    offset = 0
    while len(made) < count:
        ids = np.minimum(chance.zipf(1.2, chance.integers(20, 200)) - 1, V - 2).astype(np.int32)
        offset += 1
        made += [block for block, _ in packer.add(ids, TopicPartition("t", 0), offset)]
    return made[:count]


def snapshot(version: int) -> Snapshot:
    counts_HV = np.stack([1e4 / np.arange(1, V + 1), 1e6 / np.arange(1, V + 1)])
    return Snapshot(
        job="overhead",
        version=version,
        created_at_ms=SystemClock().now_ms(),
        as_of_ms=version,
        half_lives_seconds=(300.0, 86_400.0),
        counts_HV=counts_HV,
        documents_HV=None,
        tokens_H=counts_HV.sum(axis=1),
        records_H=np.ones(2),
        offsets={TopicPartition("t", 0): version},
        tokenizer_name="zipf",
        tokenizer_fingerprint="zipf",
        epoch=1,
    )


def make_step(kind: str, model: Any, accelerator: Accelerator) -> TrainStep:
    """A step on a model of a few million parameters."""
    loss = LossConfig.model_validate({"kind": kind})
    module: Any = LanguageModelLoss(model, choose_path(model, loss, DEVICE))
    optimizer: Any = build_optimizer([{"params": list(model.parameters())}], OptimizerConfig())
    module, optimizer = accelerator.prepare(module, optimizer)
    schedule = build_schedule(optimizer, OptimizerConfig(), 0)
    return TrainStep(module, optimizer, schedule, accelerator, loss, StepConfig(rows=ROWS))


def plain_loop(step: TrainStep, rows: Sequence[Block]) -> Callable[[int], None]:
    neutral = TokenTables.neutral(V, DEVICE)

    def run(number: int) -> None:
        chosen = [rows[(number * ROWS + row) % len(rows)] for row in range(ROWS)]
        step.run([Batch.of(chosen, device=DEVICE)], neutral)

    return run


def weighted_loop(
    step: TrainStep, rows: Sequence[Block], subscriber: Subscriber, monitors: Monitors
) -> Callable[[int], None]:
    config = ReplayConfig()
    replay = ReplayBuffer(config, BLOCK, seed=0)
    replayed = int(config.share * ROWS)
    tables = subscriber.begin()
    replay.reweigh(tables)
    monitors.swapped(tables)
    for block in rows[:64]:
        replay.add(block)
    state = {"tables": tables}

    def run(number: int) -> None:
        newer = subscriber.at_step_boundary()
        if newer is not None:
            state["tables"] = newer
            replay.reweigh(newer)
            monitors.swapped(newer)
        fresh = [rows[(number * ROWS + row) % len(rows)] for row in range(ROWS - replayed)]
        old, weights = replay.draw(replayed)
        batch = Batch.of(
            [*fresh, *old],
            [True] * len(fresh) + [False] * replayed,
            [1.0] * len(fresh) + weights,
            DEVICE,
        )
        report = step.run([batch], state["tables"])
        for block in fresh:
            replay.add(block)
        monitors.observe(report, 0.0)
        monitors.maybe_log(report.step, RunFacts)

    return run


def measure_steps(count: int, hidden: int) -> dict[str, float]:
    fields = {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": 3 * hidden,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "tie_word_embeddings": True,
    }
    config = ModelConfig.model_validate({"new": fields})
    accelerator = Accelerator(cpu=DEVICE == "cpu")
    models = [load_model(config, 0, V).to(DEVICE) for _ in range(2)]
    rows = blocks(512)
    with RedisServer() as server, TemporaryDirectory() as output:
        store = open_snapshots(server.config(), SnapshotsConfig(), "overhead")
        store.publish(snapshot(1), 1)
        clock = SystemClock()
        puller = Puller(store, "zipf", Recipe(vocab_size=V), 10.0, DEVICE, clock)
        neutral = TokenTables.neutral(V, DEVICE)
        settings = SubscriberConfig(wait_seconds=30)
        subscriber = Subscriber(puller, settings, neutral, SingleRank(), clock)
        monitors = Monitors(
            MonitorsConfig(),
            Path(output),
            clock,
            is_main=True,
            reduce=lambda tensor: tensor,
            token_text=str,
        )
        monitors.begin(0)
        loops = [
            plain_loop(make_step("plain", models[0], accelerator), rows),
            weighted_loop(
                make_step("weighted", models[1], accelerator), rows, subscriber, monitors
            ),
        ]
        ended = threading.Event()
        publisher = threading.Thread(target=_publish, args=(store, ended), daemon=True)
        publisher.start()
        times: list[list[float]] = [[], []]
        for number in range(count + 4):
            for which in (0, 1) if number % 2 else (1, 0):
                began = time.perf_counter()
                loops[which](number)
                if DEVICE == "cuda":
                    torch.cuda.synchronize()
                if number >= 4:
                    times[which].append(time.perf_counter() - began)
        versions = subscriber.status().version
        ended.set()
        publisher.join(10)
        subscriber.close()
        monitors.close()
    ratios = sorted(two / one for one, two in zip(*times, strict=True))
    quartiles = statistics.quantiles(ratios, n=4)
    return {
        "parameters": sum(item.numel() for item in models[0].parameters()),
        "plain_ms": round(1000 * statistics.median(times[0]), 2),
        "weighted_ms": round(1000 * statistics.median(times[1]), 2),
        "step_ratio": round(statistics.median(times[1]) / statistics.median(times[0]), 4),
        "step_ratio_spread": [round(quartiles[0], 4), round(quartiles[2], 4)],
        "versions": versions,
    }


def _publish(store: Any, ended: threading.Event) -> None:
    version = 1
    while not ended.wait(PUBLISH_SECONDS):
        version += 1
        store.publish(replace(snapshot(version), version=version), 1)


def loss_peak(path: str, tokens: int, hidden: int) -> int:
    """Peak bytes of head and loss, forward and backward, of this process by one path."""
    from trainer.losses.fused import fused_cross_entropy

    torch.manual_seed(0)
    states = torch.randn((tokens, hidden), device=DEVICE, requires_grad=True)
    head = torch.randn((V, hidden), device=DEVICE, requires_grad=True)
    targets = torch.randint(0, V, (tokens,), device=DEVICE)
    weights = torch.rand(V, device=DEVICE)
    _loss(path, states[:8], head, targets[:8], weights, fused_cross_entropy).backward()
    before = _peak()
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    _loss(path, states, head, targets, weights, fused_cross_entropy).backward()
    return _peak() - before


def _loss(
    path: str, states: Any, head: Any, targets: Any, weights: Any, fused: Callable[..., Any]
) -> Any:
    if path == "liger":
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

        return liger_fused_linear_cross_entropy(states, head, targets, ce_weight=weights)
    if path == "fused":
        losses = fused(states, head, None, targets)
    else:
        losses = torch.nn.functional.cross_entropy(states @ head.T, targets, reduction="none")
    return (losses * weights[targets]).sum() / weights[targets].sum()


def _peak() -> int:
    if DEVICE == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def peaks(tokens: int, hidden: int) -> dict[str, float]:
    found = {}
    for path in ("fused", "plain", *(["liger"] if DEVICE == "cuda" else [])):
        words = ["--peak", path, "--tokens", str(tokens), "--peak-hidden", str(hidden)]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.trainer_overhead", *words],
            capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            found[path] = int(done.stdout)
    result = {f"{path}_peak_mb": round(value / 1e6, 1) for path, value in found.items()}
    result["loss_peak_ratio"] = round(found["fused"] / found["plain"], 4)
    if "liger" in found:
        result["loss_peak_ratio_to_liger"] = round(found["fused"] / found["liger"], 4)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=4096, help="of the loss whose peak is taken")
    parser.add_argument("--peak-hidden", type=int, default=512)
    parser.add_argument("--peak", choices=["fused", "plain", "liger"], help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    if options.peak:
        print(loss_peak(options.peak, options.tokens, options.peak_hidden))
        return
    result = measure_steps(options.steps, options.hidden)
    result |= peaks(options.tokens, options.peak_hidden)
    if options.as_json:
        print(json.dumps(result))
        return
    low, high = result["step_ratio_spread"]
    print(f"{result['parameters']:,} parameters, V = {V:,}, {ROWS} rows of {BLOCK}, {DEVICE}")
    print(f"plain {result['plain_ms']:.1f} ms, weighted {result['weighted_ms']:.1f} ms a step")
    print(f"ratio {result['step_ratio']:.3f}, quartiles of neighbours {low:.3f} to {high:.3f}")
    print(f"snapshots up to version {result['versions']} were swapped in meanwhile")
    names = [name for name in result if name.endswith("_peak_mb")]
    print("peak of the loss, MB: " + ", ".join(f"{name[:-8]} {result[name]:,}" for name in names))
    print(f"fused to plain {result['loss_peak_ratio']:.3f}")


if __name__ == "__main__":
    main()
