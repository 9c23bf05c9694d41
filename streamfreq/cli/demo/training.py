"""The demo's second half: a small model made on the spot, trained by `streamfreq-trainer`."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from streamfreq.cli.demo.parts import ChildProcess, DemoConfig, free_port, source_sections

VOCAB_SIZE = 4096
LEARNED_FROM = 4000
"""So many texts, from all over the stream, are enough for a tokenizer of that size."""


def can_train() -> bool:
    """Whether the trainer's libraries are installed."""
    needed = ("transformers", "accelerate", "matplotlib")
    return all(importlib.util.find_spec(name) is not None for name in needed)


def learn_tokenizer(texts: Sequence[str], folder: Path) -> str:
    """A tokenizer for daemon and model, learned from the text; its path."""
    from streamfreq.tokenization.small import learn_bpe

    path = folder / "tokenizer.json"
    learn_bpe(texts[:: max(1, len(texts) // LEARNED_FROM)], VOCAB_SIZE, path)
    return str(path)


def trainer_process(
    folder: Path, demo: DemoConfig, stream: Path, rate: float, kafka: str | None
) -> ChildProcess:
    """Write trainer.toml, and the process that trains by it."""
    port = free_port()
    file = folder / "trainer.toml"
    file.write_text(
        f"""# Written by `streamfreq demo`; its store and broker have ended with it.
name = "demo"
output = {json.dumps(str(folder / "training"))}

{source_sections(demo, stream, rate, kafka)}
[value]
format = "json"

[tokenizer]
path = {json.dumps(demo.tokenizer)}

[redis]
url = {json.dumps(demo.redis_url)}

[subscriber]
job = {json.dumps(demo.job)}
pull_interval_seconds = 2

[data]
block_size = 128

[step]
rows = 4

[optimizer]
learning_rate = 2e-3
warmup_steps = 20

[monitors]
log_interval_steps = 10
http_port = {port}

[save]
interval_steps = 200

[model.new]
model_type = "llama"
hidden_size = 96
intermediate_size = 256
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 4
max_position_embeddings = 128
tie_word_embeddings = true
""",
        encoding="utf-8",
    )
    words = ["trainer", "run", "-c", str(file)]
    return ChildProcess("trainer", words, folder / "trainer.log", port)


def draw(folder: Path) -> Path | None:
    """The picture of the run; None when the trainer made too few steps for one."""
    output = folder / "training"
    picture = folder / "training.png"
    words = [sys.executable, "-m", "trainer", "plot", str(output), "--png", str(picture)]
    done = subprocess.run(words, capture_output=True, text=True)
    return picture if done.returncode == 0 else None
