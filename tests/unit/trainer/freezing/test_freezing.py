"""What is frozen stays as it is to the last bit, the rest moves, and the table says so."""

from __future__ import annotations

import re

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from streamfreq.errors import ConfigError
from tests.unit.trainer.models.test_models import TINY
from trainer.config import FreezingConfig, LoraConfig, OptimizerConfig
from trainer.freezing import (
    GradualUnfreezing,
    Plan,
    parameter_groups,
    prepare,
    scale_embedding_gradient,
    trainable_table,
)

V = 60
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")


def model(kind: str = "llama", *, tied: bool = False, layers: int = 3):
    fields = {**TINY[kind], "tie_word_embeddings": tied}
    fields["n_layer" if kind == "gpt2" else "num_hidden_layers"] = layers
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(vocab_size=V, **fields))


def plan_of(of, lora: dict | None = None, **freezing: object) -> tuple[Plan, FreezingConfig]:
    config = FreezingConfig.model_validate(freezing)
    return prepare(of, config, LoraConfig.model_validate(lora or {})), config


def learn(plan: Plan, freezing: FreezingConfig, steps: int = 2) -> dict[str, bool]:
    """Which parameters have moved after some steps of AdamW."""
    before = {name: value.clone() for name, value in plan.model.named_parameters()}
    optimizer = torch.optim.AdamW(
        parameter_groups(plan, OptimizerConfig(weight_decay=0.1), freezing)
    )
    unfreezing = GradualUnfreezing(plan)
    ids = torch.arange(20).reshape(2, 10)
    for step in range(1, steps + 1):
        plan.model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        unfreezing.before_update(step)
        optimizer.step()
        optimizer.zero_grad()
    return {
        name: not torch.equal(value, before[name]) for name, value in plan.model.named_parameters()
    }


def layer_of(name: str) -> int | None:
    found = re.search(r"(?:layers|h)\.(\d+)\.", name)
    return int(found[1]) if found else None


def is_embedding(name: str) -> bool:
    return any(part in name for part in ("embed_tokens", "wte", "wpe", "embed_in"))


def moves(name: str, moved: bool) -> bool:
    """Keys' biases have no gradient in attention: softmax does not see them."""
    return moved or "bias" in name


@pytest.mark.parametrize("kind", TINY)
@pytest.mark.parametrize("tied", [False, True])
def test_first_layers_and_embeddings_stay_and_all_else_moves(kind: str, tied: bool) -> None:
    plan, freezing = plan_of(model(kind, tied=tied), embeddings=True, first_layers=2)
    for name, moved in learn(plan, freezing).items():
        layer = layer_of(name)
        frozen = is_embedding(name) or (layer is not None and layer < 2)
        assert moves(name, moved) if not frozen else not moved, name
    assert bool(plan.notes) is tied


@pytest.mark.parametrize("kind", TINY)
def test_only_the_last_layers_with_norm_and_head(kind: str) -> None:
    plan, freezing = plan_of(model(kind), only_last_layers=1)
    for name, moved in learn(plan, freezing).items():
        layer = layer_of(name)
        frozen = is_embedding(name) or (layer is not None and layer < 2)
        assert moves(name, moved) if not frozen else not moved, name


def test_a_layer_that_waits_is_frozen_until_its_turn() -> None:
    waiting, freezing = plan_of(model(), first_layers=2, unfreeze_every_steps=3)
    frozen, _ = plan_of(model(), first_layers=2)
    assert all(item.requires_grad for item in waiting.model.parameters())
    learn(waiting, freezing, steps=3)
    learn(frozen, freezing, steps=3)
    pairs = zip(waiting.model.named_parameters(), frozen.model.named_parameters(), strict=True)
    for (name, one), (_, other) in pairs:
        assert torch.equal(one, other), name
    assert waiting.thaws == ((1, 4), (0, 7))
    again, _ = plan_of(model(), first_layers=2, unfreeze_every_steps=3)
    moved = {layer_of(name) for name, changed in learn(again, freezing, 4).items() if changed}
    assert moved == {1, 2, None}
    last, _ = plan_of(model(), first_layers=2, unfreeze_every_steps=3)
    assert 0 in {layer_of(name) for name, changed in learn(last, freezing, 7).items() if changed}


@pytest.mark.parametrize("kind", TINY)
@pytest.mark.parametrize("tied", [False, True])
def test_groups_hold_every_trainable_parameter_once(kind: str, tied: bool) -> None:
    plan, freezing = plan_of(model(kind, tied=tied), first_layers=1, layer_decay=0.5)
    groups = parameter_groups(plan, OptimizerConfig(learning_rate=1.0), freezing)
    grouped = [id(item) for group in groups for item in group["params"]]
    wanted = {id(item) for item in plan.model.parameters() if item.requires_grad}
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == wanted
    rates = {group["name"].rsplit(" ", 1)[0]: group["lr"] for group in groups}
    assert rates["embeddings"] == 0.5**4
    assert (rates["layer 1"], rates["layer 2"]) == (0.25, 0.5)
    assert rates["final norm"] == 1.0
    for group in groups:
        assert all((item.ndim >= 2) == bool(group["weight_decay"]) for item in group["params"])


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("scale", [0.0, 0.3])
def test_the_embeddings_gradient_is_scaled_and_a_tied_heads_is_not(
    tied: bool, scale: float
) -> None:
    ids = torch.arange(20).reshape(2, 10)

    def gradient(factor: float, *, detach_head: bool = False) -> torch.Tensor:
        made = model(tied=tied)
        scale_embedding_gradient(made, factor)
        made(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        grad = made.get_input_embeddings().weight.grad
        return torch.zeros(V, 16) if grad is None else grad

    nothing, whole, scaled = gradient(0.0), gradient(1.0), gradient(scale)
    assert torch.allclose(scaled, nothing + scale * (whole - nothing), atol=1e-7)
    assert bool(nothing.any()) is tied


def test_only_adapters_move() -> None:
    plan, freezing = plan_of(model(), lora={"rank": 2})
    moved = learn(plan, freezing, steps=3)
    assert {name for name, changed in moved.items() if changed} == {
        name for name in moved if "lora_" in name
    }
    assert "LoRA" in trainable_table(plan, freezing)


@pytest.mark.parametrize(
    ("freezing", "lora", "says"),
    [
        ({"first_layers": 4}, {}, "freezing.first_layers = 4: the model has 3 layers"),
        ({"only_last_layers": 9}, {}, "freezing.only_last_layers = 9"),
        ({"first_layers": 1, "only_last_layers": 1}, {}, "give one of them"),
        ({"unfreeze_every_steps": 5}, {}, "no layer is frozen"),
        ({"first_layers": 1}, {"rank": 2}, "leave the section freezing out"),
        ({}, {"target_modules": ["q_proj"]}, "need lora.rank above 0"),
        ({}, {"rank": 2, "target_modules": ["nothing"]}, "lora.target_modules"),
        ({}, {"rank": 2, "target_modules": ["q_proj", "v_prj"]}, "v_prj; did you mean v_proj"),
        ({}, {"rank": 2, "save_modules": ["lm_haed"]}, "lora.save_modules: .* lm_head"),
    ],
)
def test_contradictions_are_refused(freezing: dict, lora: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        plan_of(model(), lora=lora, **freezing)


def test_adapters_beside_a_copy_of_tied_embeddings_are_refused() -> None:
    with pytest.raises(ConfigError, match="head and embeddings are tied"):
        plan_of(model(tied=True), lora={"rank": 2, "save_modules": ["lm_head"]})


def test_an_adapter_of_tied_embeddings_is_refused() -> None:
    for name in ("lm_head", "embed_tokens"):
        with pytest.raises(ConfigError, match="head and embeddings are tied"):
            plan_of(model(tied=True), lora={"rank": 2, "target_modules": ["q_proj", name]})
    assert plan_of(model(), lora={"rank": 2, "target_modules": ["lm_head"]})[0].lora


@pytest.mark.parametrize("tied", [False, True])
def test_the_table_adds_up(tied: bool) -> None:
    plan, freezing = plan_of(
        model(tied=tied, layers=4), first_layers=2, embeddings=True, layer_decay=0.9
    )
    lines = trainable_table(plan, freezing).splitlines()
    numbers = {
        re.split(r"\s{2,}", text)[0]: [
            int(cell.replace(",", "")) for cell in re.split(r"\s{2,}", text)[1:3]
        ]
        for text in lines[1:]
        if re.search(r"\d", text)
    }
    total = numbers.pop("total")
    assert total == [sum(row[column] for row in numbers.values()) for column in range(2)]
    assert total[0] == sum(item.numel() for item in plan.model.parameters())
    assert total[1] == sum(item.numel() for item in plan.model.parameters() if item.requires_grad)
    assert numbers["layers 0 to 1"][1] == 0
    assert ("tied: also the head" in lines[1]) is tied
