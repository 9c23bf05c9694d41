"""Whole runs: exact after an interruption, whatever is wrong with store, snapshots and stream."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from streamfreq.clock import ManualClock
from streamfreq.config import SnapshotsConfig, TokenizerConfig
from streamfreq.config.show import show_config
from streamfreq.errors import BadRecord, ConfigError, DataRefused
from streamfreq.snapshots import open_snapshots
from streamfreq.tokenization import load_tokenizer
from tests.architecture.source_files import ROOT
from tests.unit.trainer.runs import (
    exported,
    history,
    make_snapshot,
    make_tokenizer,
    run_config,
    same_parameters,
    texts,
    train,
    write_stream,
)
from trainer.monitors.history import read_history
from trainer.resume import ResumeStore

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")

STEPS = 12


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A stream and a tokenizer."""
    folder = tmp_path_factory.mktemp("made")
    return write_stream(folder), make_tokenizer(folder)


def store_of(config):
    return open_snapshots(config.redis, SnapshotsConfig(), config.subscriber.job)


def publish(config, snapshot) -> None:
    store_of(config).publish(snapshot, 1)


@pytest.fixture(scope="module")
def uninterrupted(made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a run of 12 steps with a snapshot, from beginning to end."""
    output = tmp_path_factory.mktemp("whole")
    config = run_config(output, *made, max_steps=STEPS, subscriber={"wait_seconds": 20})
    publish(config, make_snapshot(made[1], texts(300, seed=3)))
    train(config)
    return output


def test_a_run_learns_and_says_where_its_model_is_from(uninterrupted: Path) -> None:
    steps = history(uninterrupted)
    assert [step for step, *_ in steps] == list(range(1, STEPS + 1))
    assert all(version == 1 for *_, version in steps)
    assert steps[-1][1] < steps[0][1] - 0.3
    assert any(abs(plain - weighted) > 1e-3 for _, plain, weighted, _ in steps)
    (folder,) = (uninterrupted / "models").iterdir()
    provenance = json.loads((folder / "provenance.json").read_text())
    assert provenance["step"] == STEPS
    assert provenance["snapshot"]["version"] == 1
    assert next(iter(provenance["offsets"].values())) == {"0": pytest.approx(100, abs=95)}
    assert 'name = "test"' in provenance["configuration"]
    assert {"tokenizer.json", "config.json", "model.safetensors"} <= set(os.listdir(folder))


@pytest.mark.parametrize("cut", [1, 4, 7])
def test_an_interrupted_run_equals_an_uninterrupted_one(
    made, uninterrupted: Path, tmp_path: Path, cut: int
) -> None:
    sections = {"subscriber": {"wait_seconds": 20}, "redis": {"url": f"memory://{uninterrupted}"}}
    train(run_config(tmp_path, *made, max_steps=cut, **sections))
    # The second half finds the store away: the weights are in the resume state.
    sections["redis"] = {"url": "redis://127.0.0.1:1/0"}
    train(run_config(tmp_path, *made, max_steps=STEPS, **sections))
    assert history(tmp_path) == history(uninterrupted)
    assert same_parameters(exported(tmp_path), exported(uninterrupted))


KINDS = {
    "one document a row": {"data": {"packing": False}},
    "adapters": {"lora": {"rank": 2, "dropout": 0.1}},
    "gradual unfreezing": {"freezing": {"first_layers": 2, "unfreeze_every_steps": 3}},
    "bf16": {"step": {"precision": "bf16"}},
    "fp16": {"step": {"precision": "fp16"}, "loss": {"path": "fused"}},
    "reservoir": {
        "replay": {"eviction": "reservoir", "importance": 0.5, "share": 0.5, "capacity": 5},
        "loss": {"kind": "focal"},
    },
    "logit adjustment": {"loss": {"kind": "logit_adjustment"}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_goes_on_exactly(
    made, uninterrupted: Path, tmp_path: Path, kind: str
) -> None:
    sections = {
        **KINDS[kind],
        "subscriber": {"wait_seconds": 20},
        "redis": {"url": f"memory://{uninterrupted}"},
    }
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(run_config(whole, *made, max_steps=9, **sections))
    for steps in (5, 9):
        train(run_config(cut, *made, max_steps=steps, **sections))
    assert history(cut) == history(whole)
    assert all(version == 1 for *_, version in history(cut))


def test_kill_at_any_moment_and_go_on(made, uninterrupted: Path, tmp_path: Path) -> None:
    """The process is killed while it trains; the run that goes on is the same to the last bit."""
    folder = tmp_path / "output"
    # Half of the steps are made with the same weights before the process is started, since a
    # memory store ends with its process.
    sections = {"subscriber": {"wait_seconds": 20}, "redis": {"url": f"memory://{uninterrupted}"}}
    train(run_config(folder, *made, max_steps=4, **sections))
    sections["redis"] = {"url": "redis://127.0.0.1:1/0"}
    config = run_config(folder, *made, max_steps=0, save={"interval_steps": 3}, **sections)
    file = tmp_path / "trainer.toml"
    file.write_text(show_config(config))
    process = subprocess.Popen(
        [sys.executable, "-m", "trainer", "run", "-c", str(file)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while len(history(folder)) < 6:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    saved = ResumeStore(folder / "resume", 2).latest()
    assert saved is not None
    seen = max(step for step, *_ in history(folder))
    assert seen - saved.step <= 3 + 1
    if saved.step > STEPS:
        pytest.skip("the machine was too fast")
    train(run_config(folder, *made, max_steps=STEPS, **sections))
    assert history(folder)[:STEPS] == history(uninterrupted)
    assert same_parameters(exported(folder), exported(uninterrupted))


def test_a_finished_run_that_is_started_again_changes_nothing(
    made, uninterrupted: Path, tmp_path: Path
) -> None:
    before = exported(uninterrupted)
    train(run_config(uninterrupted, *made, max_steps=STEPS))
    assert same_parameters(exported(uninterrupted), before)
    assert len(history(uninterrupted)) == STEPS


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({"data": {"block_size": 32}}, "data.block_size = 24, here it is 32"),
        ({"lora": {"rank": 2}}, "parameters"),
    ],
)
def test_another_run_is_not_gone_on_with(
    made, uninterrupted: Path, sections: dict, says: str
) -> None:
    with pytest.raises(ConfigError, match="holds a run with") as refused:
        train(run_config(uninterrupted, *made, max_steps=99, **sections))
    assert says in str(refused.value)


def test_the_stream_is_trained_on_once_to_its_end(made, tmp_path: Path) -> None:
    lines = texts(60)
    stream = tmp_path / "stream.txt"
    stream.write_text("\n".join(lines))
    train(run_config(tmp_path / "output", stream, made[1], replay={"capacity": 0}))
    last = list(read_history(tmp_path / "output" / "metrics.jsonl"))[-1]
    tokenizer = load_tokenizer(TokenizerConfig(path=str(made[1])))
    # Behind each document its end is predicted, and its first token is not.
    assert (last["records"], last["tokens"]) == (60, len(tokenizer.encode_batch(lines).ids_N))


def test_without_a_store_training_goes_on_with_weights_of_1(
    made, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "trainer")
    train(run_config(tmp_path, *made, max_steps=6, redis={"url": "redis://127.0.0.1:1/0"}))
    assert all(plain == pytest.approx(weighted, rel=1e-6) for _, plain, weighted, _ in
               history(tmp_path))  # fmt: skip
    assert "the weights in use stay" in caplog.text


def damaged(snapshot, kind: str):
    if kind == "another tokenizer":
        return replace(snapshot, tokenizer_fingerprint="0" * 64)
    return replace(snapshot, counts_HV=np.zeros_like(snapshot.counts_HV))


@pytest.mark.parametrize("kind", ["another tokenizer", "empty"])
def test_a_snapshot_that_is_of_no_use_does_not_stop_training(
    made, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "trainer")
    config = run_config(tmp_path, *made, max_steps=6, subscriber={"wait_seconds": 1})
    publish(config, damaged(make_snapshot(made[1], texts(50)), kind))
    train(config)
    steps = history(tmp_path)
    assert len(steps) == 6
    assert all(math.isfinite(plain) for _, plain, _, _ in steps)
    assert all(plain == pytest.approx(weighted, rel=1e-6) for _, plain, weighted, _ in steps)
    refused = list(read_history(tmp_path / "metrics.jsonl"))[-1]["refused"]
    assert refused == (1 if kind == "another tokenizer" else 0)


@pytest.mark.parametrize("policy", ["keep", "neutral", "stop"])
def test_an_old_snapshot_is_used_by_policy(
    made, tmp_path: Path, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(start_ms=1_000_000)
    config = run_config(
        tmp_path,
        *made,
        max_steps=4,
        subscriber={"wait_seconds": 20, "max_age_seconds": 60, "on_stale": policy},
    )
    publish(config, make_snapshot(made[1], texts(300), created_at_ms=900_000))
    if policy == "stop":
        with pytest.raises(DataRefused, match="snapshot 1 is 100 s old"):
            train(config, clock=clock)
        return
    train(config, clock=clock)
    versions = {version for *_, version in history(tmp_path)}
    assert versions == ({1} if policy == "keep" else {0})
    assert "snapshot 1 is 100 s old" in caplog.text


def test_bad_records_are_counted_and_stop_by_policy(made, tmp_path: Path) -> None:
    stream = tmp_path / "stream.txt"
    lines = [json.dumps({"text": text}) for text in texts(60)]
    lines.insert(50, "no json")
    stream.write_text("\n".join(lines))
    value = {"format": "json"}
    train(run_config(tmp_path / "skip", stream, made[1], value=value))
    assert list(read_history(tmp_path / "skip" / "metrics.jsonl"))[-1]["bad_records"] == 1
    with pytest.raises(BadRecord, match="offset 50: not_json"):
        train(run_config(tmp_path / "stop", stream, made[1], value={**value, "on_bad": "stop"}))
    # What was learned before it is saved.
    assert ResumeStore(tmp_path / "stop" / "resume", 2).latest() is not None


def test_a_run_that_goes_on_follows_its_configuration(made, tmp_path: Path) -> None:
    train(run_config(tmp_path, *made, max_steps=4))
    train(run_config(tmp_path, *made, max_steps=6, optimizer={"learning_rate": 5e-4}))
    rates = [item["learning_rate"] for item in read_history(tmp_path / "metrics.jsonl")]
    assert rates == pytest.approx([1e-3, 2e-3, 3e-3, 3e-3, 5e-4, 5e-4])


def test_steps_that_all_fail_leave_the_last_good_state(made, tmp_path: Path) -> None:
    """A rate that blows the model up: training stops, and what it saved before is not lost."""
    train(run_config(tmp_path, *made, max_steps=4))
    good = ResumeStore(tmp_path / "resume", 2).latest()
    with pytest.raises(DataRefused, match=r"step .* in a row") as refused:
        train(
            run_config(
                tmp_path,
                *made,
                optimizer={"learning_rate": 1e30, "warmup_steps": 0},
                step={"max_bad_steps": 3},
                save={"interval_steps": 100},
            )
        )
    assert "learning" in str(refused.value)
    assert ResumeStore(tmp_path / "resume", 2).latest() == good
    assert not any("0000000005" in path.name for path in (tmp_path / "models").iterdir())


def test_an_empty_stream_ends_without_a_step(made, tmp_path: Path) -> None:
    stream = tmp_path / "empty.txt"
    stream.write_text("")
    train(run_config(tmp_path / "output", stream, made[1]))
    assert history(tmp_path / "output") == []


@pytest.mark.slow
def test_two_processes_make_the_same_steps_as_one(made, tmp_path: Path) -> None:
    common = {
        "max_steps": 5,
        "model": {"device": "cpu", "new": {
            "model_type": "llama", "hidden_size": 16, "intermediate_size": 32,
            "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
            "max_position_embeddings": 64,
        }},
        "monitors": {"log_interval_steps": 1, "tensorboard": False},
    }  # fmt: skip
    train(run_config(tmp_path / "one", *made, step={"rows": 2, "accumulation": 2}, **common))
    config = run_config(tmp_path / "two", *made, step={"rows": 2, "accumulation": 1}, **common)
    file = tmp_path / "two.toml"
    file.write_text(show_config(config))
    words = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, "-m", *words, "-m", "trainer", "run", "-c", str(file)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for one, two in zip(history(tmp_path / "one"), history(tmp_path / "two"), strict=True):
        assert one[1:3] == pytest.approx(two[1:3], rel=1e-4)
    first, second = exported(tmp_path / "one"), exported(tmp_path / "two")
    for name, parameter in first.items():
        assert torch.allclose(parameter, second[name], atol=1e-4)
    assert ResumeStore(tmp_path / "two" / "resume", 2).latest() is not None
