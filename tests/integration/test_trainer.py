"""From records in Kafka through the daemon and Redis to the gradient in the trainer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from streamfreq.config import TokenizerConfig
from streamfreq.sources.kafka import TopicWriter
from streamfreq.tokenization import load_tokenizer
from tests.integration.harness import RunningDaemon, daemon_config
from tests.services.kafka import KafkaBroker
from tests.services.redis import RedisServer
from tests.unit.trainer.runs import history, make_tokenizer, run_config, texts, train
from trainer.losses import weighted_cross_entropy
from trainer.monitors.history import read_history
from trainer.token_weights import TokenWeights

pytestmark = [pytest.mark.broker, pytest.mark.redis_server]

RARITY: dict[str, Any] = {"product": [{"scheme": "inverse_power", "params": {"power": 0.5}}]}
EMERGENCE: dict[str, Any] = {"product": [{"scheme": "emergence", "horizon": "shortest"}]}


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return make_tokenizer(tmp_path, 500)


def gradient_of(weights: TokenWeights, token: int, others: int) -> float:
    """How hard the weighted loss of a token and an ever equal one pulls at the token's logit."""
    logits = torch.zeros((2, len(weights.weights)), requires_grad=True)
    targets = torch.tensor([token, others])
    weighted_cross_entropy(logits, targets, weights.weights, denominator=2.0).backward()
    assert logits.grad is not None
    return -float(logits.grad[0, token])


def wait_for(weights: TokenWeights, what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, "no such snapshot came"
        weights.refresh()
        time.sleep(0.05)


@pytest.mark.parametrize("recipe", [RARITY, EMERGENCE], ids=["rarity", "emergence"])
def test_the_sign_from_a_record_to_the_gradient(
    kafka_broker: KafkaBroker,
    new_topic: Callable[..., str],
    redis_server: RedisServer,
    tokenizer: Path,
    recipe: dict[str, Any],
) -> None:
    """A word that comes more and more often weighs less by rarity, and more by emergence."""
    from trainer.config import TokenWeightsConfig

    topic = new_topic(partitions=2)
    loaded = load_tokenizer(TokenizerConfig(path=str(tokenizer)))
    (word,) = loaded.encode_batch([" news"]).ids_N.tolist()
    (other,) = loaded.encode_batch([" banks"]).ids_N.tolist()
    now = time.time_ns() // 1_000_000
    config = daemon_config(
        kafka={"bootstrap_servers": [kafka_broker.bootstrap], "topics": [topic]},
        value={"format": "json", "time_field": "ts"},
        tokenizer={"path": str(tokenizer)},
        counting={"half_lives": ["10m", "1000h"]},
        redis={"url": redis_server.url},
    )
    writer = TopicWriter(kafka_broker.bootstrap, topic, partitions=2)

    def send(lines: list[str], ts: int) -> None:
        for line in lines:
            writer.send(json.dumps({"ts": ts, "text": line}).encode())
        writer.flush()

    send(texts(600), now - 3 * 3_600_000)  # long ago, all words alike
    send(texts(60, seed=1), now)
    daemon = RunningDaemon(config)
    with TokenWeights.follow(
        redis_server.url,
        config.job,
        vocab_size=loaded.vocab_size,
        tokenizer=str(tokenizer),
        pull_interval_seconds=0.2,
        weights=TokenWeightsConfig.model_validate(recipe),
    ) as weights:
        wait_for(weights, lambda: bool(weights.version) and float(weights.tables.count_V[word]) > 5)
        before, count = gradient_of(weights, word, other), float(weights.tables.count_V[word])
        send(["and news and news and news"] * 200, now + 1)
        wait_for(weights, lambda: float(weights.tables.count_V[word]) > count + 590)
        after = gradient_of(weights, word, other)
    daemon.stop()
    writer.close()
    if recipe is RARITY:
        assert after < 0.8 * before
    else:
        assert after > 1.5 * before


def test_a_run_on_a_topic_skips_nothing_and_repeats_nothing(
    kafka_broker: KafkaBroker,
    new_topic: Callable[..., str],
    redis_server: RedisServer,
    tokenizer: Path,
    tmp_path: Path,
) -> None:
    """Several partitions, ended in the middle and gone on with: each record is trained on once."""
    topic = new_topic(partitions=3)
    lines = texts(300)
    writer = TopicWriter(kafka_broker.bootstrap, topic, partitions=3)
    for line in lines:
        writer.send(line.encode())
    writer.flush()
    output = tmp_path / "output"

    def run(steps: int, **options: Any) -> None:
        config = run_config(
            output,
            Path("unused"),
            tokenizer,
            max_steps=steps,
            source={"kind": "kafka"},
            files={"paths": []},
            kafka={"bootstrap_servers": [kafka_broker.bootstrap], "topics": [topic]},
            redis={"url": redis_server.url},
            replay={"capacity": 0},
        )
        train(config, **options)

    run(7)
    run(15)
    for line in texts(50, seed=8):
        writer.send(line.encode())
    writer.flush()
    writer.close()
    run(0, until_caught_up=True)
    last = list(read_history(output / "metrics.jsonl"))[-1]
    loaded = load_tokenizer(TokenizerConfig(path=str(tokenizer)))
    wanted = len(loaded.encode_batch([*lines, *texts(50, seed=8)]).ids_N)
    assert (last["records"], last["tokens"]) == (350, wanted)
    assert [step for step, *_ in history(output)] == list(range(1, last["step"] + 1))
