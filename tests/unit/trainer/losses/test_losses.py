from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from streamfreq.errors import ConfigError
from tests.unit.trainer.losses import tiny
from trainer.blocks import IGNORED, Batch
from trainer.config import LossConfig
from trainer.losses import (
    LanguageModelLoss,
    LossPath,
    choose_path,
    objective_factors,
    token_factors,
    weighted_cross_entropy,
)
from trainer.losses.chunks import low_precision_cross_entropy
from trainer.losses.fused import fused_cross_entropy

PATHS = ["fused", "plain"]


def exact_cross_entropy(logits, targets):
    """(N,) float64, one token at a time, by the definition."""
    losses = []
    for scores, target in zip(logits.double(), targets.tolist(), strict=True):
        top = scores.max().detach()
        losses.append(
            scores.new_zeros(())
            if target == IGNORED
            else (scores - top).exp().sum().log() + top - scores[target]
        )
    return torch.stack(losses)


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("make", tiny.MODELS.values(), ids=tiny.MODELS)
def test_a_packed_document_has_the_losses_it_has_alone(make, name):
    module = LanguageModelLoss(make(), LossPath(name, "test"))
    rows = tiny.rows_of_documents(packed=True)
    batch = Batch.of([tiny.block(row) for row in rows])
    packed = module(batch.ids_BT, batch.positions_BT, batch.labels_BT)
    assert packed.dtype == torch.float32
    assert packed.shape == (tiny.ROWS, tiny.T - 1)
    assert not packed[batch.labels_BT[:, 1:] == IGNORED].any()
    for row, documents in enumerate(rows):
        start = 0
        for document in documents:
            end = start + len(document.ids)
            alone = Batch.of([tiny.block([document], length=len(document.ids))])
            losses = module(alone.ids_BT, alone.positions_BT, alone.labels_BT)[0]
            torch.testing.assert_close(packed[row, start : end - 1], losses, rtol=2e-5, atol=2e-5)
            start = end


@pytest.mark.parametrize("name", PATHS)
def test_a_bias_shifts_the_logits_and_the_plain_loss_comes_along(name):
    model = tiny.llama()
    module = LanguageModelLoss(model, LossPath(name, "test"))
    batch = Batch.of([tiny.block(row) for row in tiny.rows_of_documents(packed=True)])
    inputs = (batch.ids_BT, batch.positions_BT, batch.labels_BT)
    bias = torch.randn(tiny.V, generator=torch.Generator().manual_seed(3))
    adjusted, plain = module(*inputs, bias)
    torch.testing.assert_close(plain, module(*inputs))
    output = model(input_ids=inputs[0], position_ids=inputs[1], use_cache=False)
    logits = output.logits[:, :-1].flatten(0, 1)
    exact = exact_cross_entropy(logits + bias, inputs[2][:, 1:].flatten())
    torch.testing.assert_close(adjusted.flatten().double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("positions", [1, 7, 300])
def test_pieces_of_rows_change_nothing(positions, with_bias):
    generator = torch.Generator().manual_seed(positions)
    hidden = torch.randn(positions, 16, generator=generator).requires_grad_()
    weight = (0.3 * torch.randn(50, 16, generator=generator)).requires_grad_()
    bias = torch.randn(50, generator=generator).requires_grad_() if with_bias else None
    targets = torch.randint(0, 50, (positions,), generator=generator)
    targets[1::3] = IGNORED
    factors = torch.rand(positions, generator=generator)
    leaves = [leaf for leaf in (hidden, weight, bias) if leaf is not None]
    exact = exact_cross_entropy(torch.nn.functional.linear(hidden, weight, bias), targets)
    wanted = torch.autograd.grad((factors * exact).sum(), leaves, allow_unused=True)
    for found in (
        fused_cross_entropy(hidden, weight, bias, targets),
        low_precision_cross_entropy(hidden, weight, bias, targets, 64),
    ):
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)
        gradients = torch.autograd.grad((factors * found).sum(), leaves)
        for gradient, exact_gradient in zip(gradients, wanted, strict=True):
            other = torch.zeros_like(gradient) if exact_gradient is None else exact_gradient
            torch.testing.assert_close(gradient, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_are_not_rounded_where_products_are(dtype):
    """The bias' gradient is a sum of the factors alone, where every probability is known."""
    hidden = torch.zeros(4, 8, dtype=dtype)
    weight = torch.ones(5, 8, dtype=dtype)
    bias = torch.zeros(5, requires_grad=True)
    factors = torch.tensor([1.001, 1.0, 1.002, 7.0])
    targets = torch.tensor([0, 1, 2, IGNORED])
    losses = low_precision_cross_entropy(hidden, weight, bias, targets, 3)
    assert losses.dtype == torch.float32
    (factors * losses).sum().backward()
    mean = 3.003 / 5
    exact = torch.tensor([mean - 1.001, mean - 1.0, mean - 1.002, mean, mean])
    torch.testing.assert_close(bias.grad, exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", PATHS)
def test_autocast_and_half_parameters_give_float32_losses(name):
    for model in (tiny.llama(), tiny.llama().to(torch.bfloat16)):
        module = LanguageModelLoss(model, LossPath(name, "test"))
        batch = Batch.of([tiny.block(row) for row in tiny.rows_of_documents(packed=True)])
        inputs = (batch.ids_BT, batch.positions_BT, batch.labels_BT)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            losses = module(*inputs)
        assert losses.dtype == torch.float32
        losses.sum().backward()
        exact = LanguageModelLoss(tiny.llama(), LossPath("plain", "test"))(*inputs)
        torch.testing.assert_close(losses.mean(), exact.mean(), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("name", PATHS)
def test_gradient_checkpointing_changes_no_gradient(name):
    gradients = []
    for checkpointing in (False, True):
        model = tiny.llama()
        if checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": False})
        module = LanguageModelLoss(model, LossPath(name, "test")).train()
        batch = Batch.of([tiny.block(row) for row in tiny.rows_of_documents(packed=True)])
        module(batch.ids_BT, batch.positions_BT, batch.labels_BT).sum().backward()
        gradients.append({n: p.grad for n, p in model.named_parameters()})
    tiny.assert_close(gradients[1], gradients[0], 1e-6)


def test_the_path_is_fused_where_the_vocabulary_is_large_and_plain_where_small(caplog):
    caplog.set_level("INFO", "trainer.losses")
    assert choose_path(tiny.llama(5000), LossConfig(), "cpu").name == "fused"
    assert choose_path(tiny.llama(5000, tied=True), LossConfig(), "cpu").name == "fused"
    small = choose_path(tiny.llama(), LossConfig(), "cpu")
    assert small.name == "plain"
    assert small.reason in caplog.text
    for make in tiny.MODELS.values():
        model = make().train()
        assert choose_path(model, LossConfig(path="fused"), "cpu").name == "fused"
        assert all(module.training for module in model.modules())
    assert choose_path(tiny.llama(5000), LossConfig(path="plain"), "cpu").name == "plain"


def softcapped():
    from transformers import Gemma2Config, Gemma2ForCausalLM

    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    return Gemma2ForCausalLM(Gemma2Config(vocab_size=5000, **shape, **heads))


def scaled():
    from transformers import CohereConfig, CohereForCausalLM

    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    tokens = {"bos_token_id": None, "eos_token_id": None}
    return CohereForCausalLM(CohereConfig(vocab_size=5000, **shape, **heads, **tokens))


@pytest.mark.parametrize("make", [softcapped, scaled])
def test_a_model_that_changes_its_logits_takes_the_plain_path(make):
    model = make()
    path = choose_path(model, LossConfig(), "cpu")
    assert path.name == "plain"
    assert "logits" in path.reason
    with pytest.raises(ConfigError, match=r"loss\.path"):
        choose_path(model, LossConfig(path="fused"), "cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_soft_cap_is_seen_in_a_new_model_with_tiny_logits(dtype):
    model = softcapped().to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1e-3)
    assert choose_path(model, LossConfig(), "cpu").name == "plain"


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.parametrize(
    ("adapted", "saved"), [(["q_proj", "lm_head"], None), (["q_proj"], ["lm_head"])]
)
def test_a_head_with_an_adapter_takes_the_plain_path_and_learns(adapted, saved):
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(r=2, target_modules=adapted, modules_to_save=saved)
    model = get_peft_model(tiny.llama(5000), lora)
    path = choose_path(model, LossConfig(), "cpu")
    assert path.name == "plain"
    assert "head" in path.reason
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(0))
    rows = tiny.rows_of_documents(packed=True)
    weights = tiny.token_weights(vocabulary=5000)
    exact = tiny.reference_gradients(model, rows, tiny.row_weights(), weights)
    batch = Batch.of([tiny.block(row) for row in rows], row_weights=tiny.row_weights())
    losses = LanguageModelLoss(model, path)(batch.ids_BT, batch.positions_BT, batch.labels_BT)
    factors = token_factors(batch.labels_BT[:, 1:], batch.row_weights_B, weights)
    ((factors * losses).sum() / factors.sum()).backward()
    found = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert any("lm_head" in name for name in found)
    tiny.assert_close(found, exact, 1e-4)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_adapters_inside_the_body_go_with_the_fused_path():
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny.llama(5000), LoraConfig(r=2, target_modules=["q_proj"]))
    path = choose_path(model, LossConfig(), "cpu")
    assert path.name == "fused"
    batch = Batch.of([tiny.block(row) for row in tiny.rows_of_documents(packed=True)])
    losses = LanguageModelLoss(model, path)(batch.ids_BT, batch.positions_BT, batch.labels_BT)
    losses.sum().backward()
    grads = {n for n, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert grads
    assert all("lora_B" in name for name in grads)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(0, 2**20), st.floats(0.0, 5.0))
def test_focal_follows_its_definition_and_gamma_0_is_the_weighted_loss(count, seed, gamma):
    generator = torch.Generator().manual_seed(seed)
    losses = (8 * torch.rand(count, generator=generator)).requires_grad_()
    factors = torch.rand(count, generator=generator)
    terms = objective_factors(losses, factors, LossConfig(kind="focal", focal_gamma=gamma))
    x = losses.detach().double().requires_grad_()
    exact = factors.double() * (1 - torch.exp(-x)) ** gamma * x
    torch.testing.assert_close(terms.double(), exact, rtol=1e-4, atol=1e-5)
    found = torch.autograd.grad(terms.sum(), losses)[0].double()
    torch.testing.assert_close(found, torch.autograd.grad(exact.sum(), x)[0], rtol=1e-3, atol=1e-4)
    if gamma == 0:
        assert torch.equal(terms, factors * losses)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_focal_of_a_certain_or_an_ignored_token_has_a_finite_gradient(gamma):
    losses = torch.zeros(3, requires_grad=True)
    factors = torch.tensor([0.0, 1.0, 2.0])
    objective_factors(losses, factors, LossConfig(kind="focal", focal_gamma=gamma)).sum().backward()
    assert losses.grad.isfinite().all()


def test_factors_are_float32_whatever_comes_in():
    targets = torch.tensor([[0, IGNORED, 2]])
    weights = torch.tensor([0.5, 1.0, 3.0], dtype=torch.bfloat16)
    factors = token_factors(targets, torch.tensor([2.0]), weights)
    assert factors.dtype == torch.float32
    assert factors.tolist() == [[1.0, 0.0, 6.0]]
    assert token_factors(targets, torch.tensor([2.0])).tolist() == [[2.0, 0.0, 2.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_convenience_is_the_mean_by_weight(dtype):
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(9, 7, generator=generator).to(dtype).requires_grad_()
    targets = torch.tensor([0, 1, 2, 3, 4, 5, 6, IGNORED, 1])
    weights = torch.rand(7, generator=generator)
    loss = weighted_cross_entropy(logits, targets, weights)
    assert loss.dtype == torch.float32
    picked = torch.where(targets == IGNORED, 0.0, weights[targets.clamp_min(0)].double())
    exact = (picked * exact_cross_entropy(logits, targets)).sum() / picked.sum()
    torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=1e-6)
    third = weighted_cross_entropy(logits, targets, weights, denominator=3 * picked.sum())
    torch.testing.assert_close(third, loss / 3)
    nothing = weighted_cross_entropy(logits, torch.full((9,), IGNORED), weights)
    nothing.backward()
    assert nothing == 0
    assert not logits.grad.any()
