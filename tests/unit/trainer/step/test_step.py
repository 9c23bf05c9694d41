from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from accelerate import Accelerator
from hypothesis import given
from hypothesis import strategies as st

from streamfreq.errors import DataRefused
from tests.unit.trainer.losses import tiny
from tests.unit.trainer.step import support
from trainer.blocks import IGNORED
from trainer.config import LossConfig, OptimizerConfig
from trainer.step import build_optimizer, build_schedule

PATHS = ["fused", "plain"]


def the_batches(forwards: int = 2):
    return support.batches(support.blocks_of("packed"), tiny.row_weights(), forwards)


def with_labels(batch, labels):
    return dataclasses.replace(batch, labels_BT=labels)


@pytest.mark.parametrize("path", PATHS)
def test_with_all_weights_1_a_step_is_bit_for_bit_the_plain_one(path):
    trained = []
    for kind in ("weighted", "plain"):
        rig = support.rig(tiny.llama(), path, LossConfig(kind=kind))
        weights = torch.ones(tiny.V) if kind == "weighted" else tiny.token_weights()
        for _ in range(3):
            rig.step.run(the_batches(), support.tables(weights))
        trained.append((rig.gradients, rig.parameters()))
    for weighted, plain in zip(*trained, strict=True):
        assert all(torch.equal(weighted[name], plain[name]) for name in plain)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", ["focal", "logit_adjustment", "plain"])
def test_the_other_kinds_have_their_exact_gradient(kind, path):
    loss = LossConfig(kind=kind, focal_gamma=2.0, tau=0.5)
    weights = tiny.token_weights()
    bias = torch.log(weights / weights.sum())
    rig = support.rig(tiny.llama(), path, loss)
    report = rig.step.run(the_batches(), support.tables(weights, bias))
    exact = tiny.reference_gradients(
        tiny.llama(),
        tiny.rows_of_documents(packed=True),
        tiny.row_weights(),
        weights if kind == "focal" else torch.ones(tiny.V),
        0.5 * bias if kind == "logit_adjustment" else None,
        2.0 if kind == "focal" else 0.0,
    )
    tiny.assert_close(rig.gradients, exact, 2e-5)
    plain = support.rig(tiny.llama(), path, LossConfig(kind="plain"))
    same = plain.step.run(the_batches(), support.tables())
    assert float(report.plain_sum) == pytest.approx(float(same.plain_sum), rel=1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_a_larger_weight_gives_a_token_a_larger_share_of_the_gradient(path):
    batches = the_batches(1)
    token = int(batches[0].labels_BT[batches[0].labels_BT != IGNORED][0])
    only = batches[0].labels_BT.where(batches[0].labels_BT == token, IGNORED)

    def gradient(weight, labels=batches[0].labels_BT):
        weights = torch.ones(tiny.V)
        weights[token] = weight
        rig = support.rig(tiny.llama(), path)
        rig.step.run([with_labels(batches[0], labels)], support.tables(weights))
        return torch.cat([grad.flatten() for grad in rig.gradients.values()])

    direction = gradient(1.0, only)
    shares = [float(gradient(weight) @ direction) for weight in (0.25, 1.0, 4.0)]
    assert shares == sorted(shares)
    assert shares[0] < shares[1] < shares[2]


def test_the_report_tells_losses_tokens_and_what_was_fresh():
    batches = the_batches(2)
    batches[1] = dataclasses.replace(batches[1], fresh_B=torch.tensor([False, True, True, False]))
    weights = tiny.token_weights()
    rig = support.rig(tiny.llama())
    report = rig.step.run(batches, support.tables(weights))
    assert (report.step, report.skipped, report.learning_rate) == (1, "", 1e-2)
    assert {"weighting", "forward_backward", "update"} == set(report.seconds)
    total = plain = squares = weighted = 0.0
    tokens = 0
    for batch, seen in zip(batches, report.token_losses, strict=True):
        assert torch.equal(seen.targets_N, batch.labels_BT[:, 1:].flatten())
        assert torch.equal(seen.fresh_N, batch.fresh_B.repeat_interleave(tiny.T - 1))
        assert not seen.losses_N.requires_grad
        predicted = seen.targets_N != IGNORED
        assert not seen.losses_N[~predicted].any()
        rows = batch.row_weights_B.repeat_interleave(tiny.T - 1)[predicted].double()
        w = weights[seen.targets_N[predicted]].double() * rows
        total, squares = total + w.sum(), squares + (w**2).sum()
        losses = seen.losses_N[predicted].double()
        weighted, plain = weighted + (w * losses).sum(), plain + losses.sum()
        tokens += int(predicted.sum())
    sums = (report.weight_sum, report.squared_weight_sum, report.weighted_sum, report.plain_sum)
    assert [float(s) for s in sums] == pytest.approx(
        [float(s) for s in (total, squares, weighted, plain)], rel=1e-6
    )
    assert int(report.tokens) == tokens


def test_the_gradient_norm_is_reported_and_clipped():
    free = support.rig(tiny.llama(), max_grad_norm=0.0)
    norm = free.step.run(the_batches(), support.tables()).gradient_norm
    exact = math.sqrt(sum(float((g.double() ** 2).sum()) for g in free.gradients.values()))
    assert norm == pytest.approx(exact, rel=1e-5)
    for limit, factor in ((norm / 4, 0.25), (norm * 4, 1.0)):
        clipped = support.rig(tiny.llama(), max_grad_norm=limit)
        seen = []
        clipped.step.optimizer.optimizer.register_step_pre_hook(
            lambda optimizer, *_, seen=seen: seen.append(
                [p.grad.clone() for group in optimizer.param_groups for p in group["params"]]
            )
        )
        report = clipped.step.run(the_batches(), support.tables())
        assert report.gradient_norm == pytest.approx(norm, rel=1e-5)
        for used, full in zip(seen[0], free.gradients.values(), strict=True):
            torch.testing.assert_close(used, full * factor, rtol=1e-4, atol=1e-7)


def test_a_gradient_dropped_before_the_update_trains_nothing():
    rig = support.rig(tiny.llama())
    before = rig.parameters()

    def drop():
        rig.model.lm_head.weight.grad = None

    rig.step.before_update = drop
    rig.step.run(the_batches(), support.tables())
    after = rig.parameters()
    assert torch.equal(after["lm_head.weight"], before["lm_head.weight"])
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert len(changed) == len(before) - 1


def test_without_any_token_nothing_is_learned_and_nothing_is_nan():
    rig = support.rig(tiny.llama(), max_bad_steps=1)
    before = rig.parameters()
    empty = [with_labels(b, torch.full_like(b.labels_BT, IGNORED)) for b in the_batches()]
    report = rig.step.run(empty, support.tables())
    assert report.skipped == "no tokens"
    assert float(report.weighted_sum) == float(report.weight_sum) == 0.0
    assert all(grad.isfinite().all() for grad in rig.gradients.values())
    after = rig.parameters()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert rig.schedule.last_epoch == 0


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("what", ["loss", "gradient", "weight"])
def test_nan_makes_no_update_and_too_many_in_a_row_end_training(what, path):
    rig = support.rig(tiny.llama(), path, max_bad_steps=3)
    good = support.tables()
    bad = support.tables(torch.full((tiny.V,), math.nan)) if what == "weight" else good
    layer = rig.model.model.layers[0]
    state = {"bad": True}

    def poison(_module, _inputs, output):
        if not state["bad"] or what == "weight":
            return output
        if what == "loss":
            return output * math.nan
        output.register_hook(lambda gradient: gradient * math.inf)
        return output

    layer.mlp.register_forward_hook(poison)
    before = rig.parameters()
    for _ in range(2):
        report = rig.step.run(the_batches(), bad)
        assert "not finite" in report.skipped
    after = rig.parameters()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not rig.step.optimizer.state
    assert rig.schedule.last_epoch == 0
    assert all(p.grad is None for p in rig.model.parameters())
    state["bad"] = False
    assert rig.step.run(the_batches(), good).skipped == ""
    assert rig.schedule.last_epoch == 1
    state["bad"] = True
    for _ in range(2):
        rig.step.run(the_batches(), bad)
    with pytest.raises(DataRefused, match=r"step 6.*3 in a row.*learning_rate"):
        rig.step.run(the_batches(), bad)


def test_steps_and_bad_steps_go_on_after_a_resume():
    nan = support.tables(torch.full((tiny.V,), math.nan))
    first = support.rig(tiny.llama(), max_bad_steps=2)
    first.step.run(the_batches(), nan)
    second = support.rig(tiny.llama(), max_bad_steps=2)
    second.step.load_state_dict(first.step.state_dict())
    with pytest.raises(DataRefused, match="step 2"):
        second.step.run(the_batches(), nan)


def scaling(scale: float) -> Accelerator:
    """A process with fp16 and its loss scaler, which accelerate itself makes only on a GPU."""
    accelerator = Accelerator(cpu=True)
    accelerator.native_amp = True
    accelerator.state._mixed_precision = "fp16"
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    return accelerator


@pytest.mark.parametrize("path", PATHS)
def test_a_loss_scale_that_is_too_high_is_lowered_and_ends_nothing(path):
    rig = support.rig(tiny.llama(), path, accelerator=scaling(2.0**24), max_bad_steps=1)
    scaler = rig.step.accelerator.scaler
    before = rig.parameters()
    skips = 0
    while (report := rig.step.run(the_batches(), support.tables())).skipped:
        assert "scale" in report.skipped
        after = rig.parameters()
        assert all(torch.equal(before[name], after[name]) for name in before)
        skips += 1
        assert scaler.get_scale() == 2.0 ** (24 - skips)
        assert rig.schedule.last_epoch == 0
    assert 0 < skips < 20
    assert rig.schedule.last_epoch == 1
    exact = tiny.reference_gradients(
        tiny.llama(), tiny.rows_of_documents(True), tiny.row_weights(), torch.ones(tiny.V)
    )
    tiny.assert_close(rig.gradients, exact, 0.02)


def test_nan_in_the_loss_leaves_the_scale_and_counts():
    rig = support.rig(tiny.llama(), accelerator=scaling(1024.0), max_bad_steps=2)
    nan = support.tables(torch.full((tiny.V,), math.nan))
    assert "not finite" in rig.step.run(the_batches(), nan).skipped
    assert rig.step.accelerator.scaler.get_scale() == 1024.0
    with pytest.raises(DataRefused):
        rig.step.run(the_batches(), nan)


@pytest.mark.parametrize("path", PATHS)
def test_bf16_keeps_weights_losses_and_parameters_in_float32(path):
    rig = support.rig(tiny.llama(), path, accelerator=Accelerator(cpu=True, mixed_precision="bf16"))
    report = rig.step.run(the_batches(), support.tables(tiny.token_weights()))
    assert all(seen.losses_N.dtype == torch.float32 for seen in report.token_losses)
    assert all(p.dtype == torch.float32 for p in rig.parameters().values())
    exact = tiny.reference_gradients(
        tiny.llama(), tiny.rows_of_documents(True), tiny.row_weights(), tiny.token_weights()
    )
    tiny.assert_close(rig.gradients, exact, 0.1)
    weights = tiny.token_weights().double()
    sums = [
        (weights[b.labels_BT[:, 1:].clamp_min(0)] * b.row_weights_B[:, None])[
            b.labels_BT[:, 1:] != IGNORED
        ].sum()
        for b in the_batches()
    ]
    assert float(report.weight_sum) == pytest.approx(float(sum(sums)), rel=1e-7)


@given(st.sampled_from(["constant", "cosine", "linear"]), st.integers(0, 20), st.integers(1, 50))
def test_the_rate_rises_over_the_warm_up_then_falls_to_0(schedule, warmup, after):
    config = OptimizerConfig(schedule=schedule, warmup_steps=warmup, learning_rate=0.5)
    steps = warmup + after
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = build_optimizer([{"params": [parameter], "lr": 0.25}], config)
    scheduler = build_schedule(optimizer, config, steps)
    rates = []
    for _ in range(steps + 2):
        rates.append(optimizer.param_groups[0]["lr"])
        parameter.grad = torch.zeros(1)
        optimizer.step()
        scheduler.step()
    assert rates[:warmup] == pytest.approx([0.25 * (n + 1) / warmup for n in range(warmup)])
    assert rates[warmup] == pytest.approx(0.25)
    rest = rates[warmup:]
    assert rest == sorted(rest, reverse=True)
    assert rest[-1] == pytest.approx(0.25 if schedule == "constant" else 0.0)


def test_groups_keep_their_own_decay():
    config = OptimizerConfig(weight_decay=0.1)
    one, two = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    optimizer = build_optimizer([{"params": [one]}, {"params": [two], "weight_decay": 0.0}], config)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
