from __future__ import annotations

import functools
import socket

import pytest
import torch

from tests.unit.trainer.losses import tiny
from tests.unit.trainer.step import ranks, support

CASES = [
    (kind, layout, path, forwards)
    for kind in tiny.MODELS
    for layout in ("packed", "padded")
    for path in ("fused", "plain")
    for forwards in ranks.SPLITS
]


@functools.cache
def exact(kind: str, layout: str):
    rows = tiny.rows_of_documents(layout == "packed")
    return tiny.reference_gradients(
        tiny.MODELS[kind](), rows, tiny.row_weights(), tiny.token_weights()
    )


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(ranks.process, (2, port, str(folder)), nprocs=2)
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_process_has_the_exact_gradient_however_the_rows_are_split(case):
    kind, layout, path, forwards = case
    rig = support.rig(tiny.MODELS[kind](), path)
    mine = support.batches(support.blocks_of(layout), tiny.row_weights(), forwards)
    rig.step.run(mine, support.tables(tiny.token_weights()))
    tiny.assert_close(rig.gradients, exact(kind, layout), 2e-5)


@pytest.mark.parametrize("case", ranks.CASES, ids=str)
def test_two_processes_have_the_exact_gradient_however_the_rows_are_split(case, two_ranks):
    for rank in two_ranks:
        tiny.assert_close(rank["exact"][case][0], exact(*case[:2]), 2e-5)


@pytest.mark.parametrize("case", ranks.CASES, ids=str)
def test_sums_are_over_all_processes_and_forward_passes(case, two_ranks):
    kind, layout, path, _forwards = case
    rig = support.rig(tiny.MODELS[kind](), path)
    mine = support.batches(support.blocks_of(layout), tiny.row_weights(), 1)
    report = rig.step.run(mine, support.tables(tiny.token_weights()))
    sums = [report.weighted_sum, report.weight_sum, report.plain_sum, report.tokens]
    for rank in two_ranks:
        assert rank["exact"][case][1] == pytest.approx([float(one) for one in sums], rel=1e-6)


def test_nan_on_one_process_is_skipped_by_both_and_the_next_step_is_made(two_ranks):
    finals = []
    for rank in two_ranks:
        before, after, skipped, final, updated = rank["bad"]
        assert "not finite" in skipped
        assert updated == ""
        for name, parameter in before.items():
            assert torch.equal(parameter.nan_to_num(7.0), after[name].nan_to_num(7.0))
        finals.append(final)
    assert any(not torch.equal(before[name], finals[1][name]) for name in before)
    for name, parameter in finals[0].items():
        assert torch.equal(parameter.nan_to_num(7.0), finals[1][name].nan_to_num(7.0))


@pytest.mark.parametrize("path", ["fused", "plain"])
def test_sharded_parameters_have_the_exact_gradient_and_norm(path, two_ranks):
    wanted = exact("llama", "packed")
    norm = sum(float((gradient**2).sum()) for gradient in wanted.values()) ** 0.5
    for rank in two_ranks:
        gradients, found = rank["sharded"][path]
        tiny.assert_close(gradients, wanted, 2e-5)
        assert found == pytest.approx(norm, rel=1e-5)
