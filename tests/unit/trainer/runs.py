"""Small training runs for tests: a tokenizer and a stream made on the spot, a tiny model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from accelerate.state import AcceleratorState

from streamfreq.codec import Snapshot
from streamfreq.config import TokenizerConfig
from streamfreq.records import TopicPartition
from streamfreq.tokenization import load_tokenizer
from streamfreq.tokenization.small import learn_bpe
from trainer.config import TrainerConfig
from trainer.monitors.history import read_history
from trainer.worker import build_worker

VOCAB_SIZE = 300
WORDS = (
    "rates fall as banks cut costs while new models learn from news streams and rare words "
    "become common next week when storms reach the coast or teams win the final match at home"
)


def texts(count: int, seed: int = 0) -> list[str]:
    """Sentences of a few words each."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS.split(), k=chance.randint(3, 12))) for _ in range(count)]


def make_tokenizer(folder: Path, vocab_size: int = VOCAB_SIZE) -> Path:
    path = folder / "tokenizer.json"
    learn_bpe(texts(400, seed=9), vocab_size, path)
    return path


def write_stream(folder: Path, count: int = 400, seed: int = 0) -> Path:
    path = folder / "stream.txt"
    path.write_text("\n".join(texts(count, seed)) + "\n")
    return path


def run_config(folder: Path, stream: Path, tokenizer: Path, **sections: Any) -> TrainerConfig:
    """A tiny run over a file; sections as keyword arguments."""
    defaults: dict[str, Any] = {
        "name": "test",
        "output": str(folder),
        "seed": 7,
        "source": {"kind": "files"},
        "files": {"paths": [str(stream)]},
        "tokenizer": {"path": str(tokenizer)},
        "redis": {"url": f"memory://{folder}"},
        "subscriber": {"job": "test", "pull_interval_seconds": 0.2},
        "model": {
            "device": "cpu",
            "new": {
                "model_type": "llama",
                "hidden_size": 16,
                "intermediate_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "max_position_embeddings": 64,
                "attention_dropout": 0.1,
            },
        },
        "data": {"block_size": 24, "max_wait_seconds": "inf", "queue_blocks": 8},
        "step": {"rows": 2, "accumulation": 2},
        "optimizer": {"learning_rate": 3e-3, "warmup_steps": 3},
        "replay": {"capacity": 16, "share": 0.3},
        "monitors": {"log_interval_steps": 1, "tensorboard": False},
        "save": {"interval_steps": 4, "keep": 2},
    }
    for name, values in sections.items():
        if isinstance(values, dict):
            values = {**defaults.get(name, {}), **values}
        defaults[name] = values
    return TrainerConfig.model_validate(defaults)


def train(config: TrainerConfig, **options: Any) -> None:
    """A whole run in this process."""
    AcceleratorState._reset_state(reset_partial_state=True)
    build_worker(config, **options).run()


def history(output: Path) -> list[tuple[int, float, float, int]]:
    """Step, plain and weighted loss, records, of every step."""
    return [
        (item["step"], item["plain"], item["weighted"], item["version"])
        for item in read_history(output / "metrics.jsonl")
    ]


def exported(output: Path) -> dict[str, torch.Tensor]:
    """The parameters of the newest exported model."""
    folder = sorted((output / "models").iterdir())[-1]
    return safetensors.torch.load_file(folder / "model.safetensors")


def same_parameters(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def make_snapshot(
    tokenizer: Path, counted: Sequence[str], *, version: int = 1, created_at_ms: int = 1_000
) -> Snapshot:
    """Plain counts of texts, the short horizon from the last tenth alone."""
    loaded = load_tokenizer(TokenizerConfig(path=str(tokenizer)))

    def counts(part: Sequence[str]) -> np.ndarray:
        ids = loaded.encode_batch(list(part)).ids_N
        return np.bincount(ids, minlength=loaded.vocab_size).astype(np.float64)

    counts_HV = np.stack([counts(counted[-max(1, len(counted) // 10) :]), counts(counted)])
    return Snapshot(
        job="test",
        version=version,
        created_at_ms=created_at_ms,
        as_of_ms=1_000,
        half_lives_seconds=(60.0, float("inf")),
        counts_HV=counts_HV,
        documents_HV=None,
        tokens_H=counts_HV.sum(axis=1),
        records_H=np.array([1.0, len(counted)]),
        offsets={TopicPartition("t", 0): len(counted)},
        tokenizer_name="small",
        tokenizer_fingerprint=loaded.fingerprint,
        epoch=1,
    )
