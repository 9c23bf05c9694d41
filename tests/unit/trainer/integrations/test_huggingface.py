"""transformers' own Trainer with live weights: the same step however it is accumulated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState
from torch.utils.data import Dataset
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments

from streamfreq.snapshots import MemorySnapshots, MemorySnapshotStore
from tests.unit.trainer.models.test_models import NEW
from tests.unit.trainer.token_weights.test_recipe import LONG, SHORT, snapshot
from trainer.integrations import FollowSnapshots, weighted_loss
from trainer.token_weights import Recipe, TokenWeights

V = 12  # four more than the snapshot counts
ROWS = 8

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Rows(Dataset):
    """Rows of tokens; labels of the first two positions, and of a few more, are ignored."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        self.ids = torch.randint(0, V, (ROWS, 10), generator=generator)

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        labels = self.ids[index].clone()
        labels[: 1 + index % 4] = -100
        return {"input_ids": self.ids[index], "labels": labels}


@pytest.fixture
def weights() -> Iterator[TokenWeights]:
    store = MemorySnapshotStore("news", snapshots=MemorySnapshots())
    store.publish(snapshot(SHORT, LONG), 1)
    with TokenWeights.of_store(store, "f", Recipe(vocab_size=V), vocab_size=V) as followed:
        assert followed._puller.wait_first(20)
        yield followed


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(vocab_size=V, **NEW))


def trained(folder: Path, weights: TokenWeights, rows: int) -> tuple[torch.nn.Module, Trainer]:
    """One optimizer step of plain gradient descent over all rows."""
    AcceleratorState._reset_state(reset_partial_state=True)
    arguments = TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        max_steps=1,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=ROWS // rows,
        learning_rate=1.0,
        lr_scheduler_type="constant",
        optim="sgd",
        max_grad_norm=0.0,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    made = model()
    trainer = Trainer(
        model=made,
        args=arguments,
        train_dataset=Rows(),
        compute_loss_func=weighted_loss(weights),
        callbacks=[FollowSnapshots(weights)],
    )
    trainer.train()
    return made, trainer


def reference(weights_V: np.ndarray) -> dict[str, torch.Tensor]:
    """Gradients in float64 of sum(w ce) / number of predicted tokens, row by row."""
    made = model().double()
    total, count = torch.zeros((), dtype=torch.float64), 0
    for row in Rows():
        logits = made(input_ids=row["input_ids"][None]).logits[0]
        for place in range(1, len(row["labels"])):
            label = int(row["labels"][place])
            if label != -100:
                logarithms = logits[place - 1] - torch.logsumexp(logits[place - 1], 0)
                total = total - float(weights_V[label]) * logarithms[label]
                count += 1
    (total / count).backward()
    return {name: value.grad for name, value in made.named_parameters()}


@pytest.mark.parametrize("rows", [8, 4, 1])
def test_the_gradient_is_the_references_however_it_is_accumulated(
    tmp_path: Path, weights: TokenWeights, rows: int
) -> None:
    made, trainer = trained(tmp_path, weights, rows)
    assert weights.version == 3  # swapped in by the callback
    wanted = reference(weights.weights.numpy())
    before = dict(model().named_parameters())
    for name, value in made.named_parameters():
        step = (before[name] - value).double()
        assert torch.allclose(step, wanted[name], rtol=2e-3, atol=2e-6), name
    logged = next(entry for entry in trainer.state.log_history if "loss" in entry)
    assert logged["snapshot_version"] == 3


def test_the_weights_are_wired_to_the_loss(weights: TokenWeights) -> None:
    weights.refresh()
    logits = torch.zeros((1, 3, V), requires_grad=True)
    rare = weighted_loss(weights)({"logits": logits}, torch.tensor([[0, 7, -100]]), 1)
    frequent = weighted_loss(weights)({"logits": logits}, torch.tensor([[0, 0, -100]]), 1)
    assert rare > 1.5 * frequent


def test_without_the_number_of_tokens_the_weights_sum_divides(weights: TokenWeights) -> None:
    weights.refresh()
    logits = torch.randn((1, 4, V))
    labels = torch.tensor([[5, 1, 7, -100]])
    loss = weighted_loss(weights)({"logits": logits}, labels)
    ce = torch.nn.functional.cross_entropy(
        logits[0, :3], labels[0, 1:], weight=weights.weights, ignore_index=-100
    )
    assert loss == pytest.approx(float(ce))
