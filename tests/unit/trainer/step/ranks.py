"""What each of two processes does in `test_ranks`; its results go to a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

SPLITS = (1, 2, 4)
CASES = [
    *(
        ("llama", layout, path, n)
        for layout in ("packed", "padded")
        for path in ("fused", "plain")
        for n in SPLITS
    ),
    *(("gpt2", "packed", path, 2) for path in ("fused", "plain")),
]
"""Model, layout, path, forward passes of a process."""


def process(rank: int, ranks: int, port: int, folder: str) -> None:
    """All cases one after the other, since starting a process costs seconds."""
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(ranks),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        OMP_NUM_THREADS="1",
    )
    torch.set_num_threads(1)
    results = {"exact": _gradients(rank, ranks), "bad": _bad_batch(rank, ranks)}
    results["sharded"] = _sharded(rank, ranks)
    torch.save(results, Path(folder) / f"rank{rank}.pt")
    torch.distributed.destroy_process_group()


def _gradients(rank: int, ranks: int) -> dict[tuple[str, str, str, int], Any]:
    from tests.unit.trainer.losses import tiny
    from tests.unit.trainer.step import support

    found = {}
    for kind, layout, path, forwards in CASES:
        rig = support.rig(tiny.MODELS[kind](), path)
        blocks = support.blocks_of(layout)
        mine = support.batches(blocks, tiny.row_weights(), forwards, rank, ranks)
        report = rig.step.run(mine, support.tables(tiny.token_weights()))
        sums = [report.weighted_sum, report.weight_sum, report.plain_sum, report.tokens]
        found[kind, layout, path, forwards] = (rig.gradients, [float(one) for one in sums])
    return found


def _bad_batch(rank: int, ranks: int) -> list[Any]:
    """Only the last rank sees the token whose embedding is NaN; then a step without it."""
    from tests.unit.trainer.losses import tiny
    from tests.unit.trainer.step import support

    model = tiny.llama()
    bad = tiny.V - 1
    with torch.no_grad():
        model.get_input_embeddings().weight[bad] = torch.nan
    rig = support.rig(model, "plain")
    good = support.batches(support.blocks_of("packed"), tiny.row_weights(), 2, rank, ranks)
    before = rig.parameters()
    if rank == ranks - 1:
        good[0].ids_BT[0, 0] = bad
    skipped = rig.step.run(good, support.tables()).skipped
    after = rig.parameters()
    good[0].ids_BT[0, 0] = 1
    updated = rig.step.run(good, support.tables()).skipped
    return [before, after, skipped, rig.parameters(), updated]


def _sharded(rank: int, ranks: int) -> dict[str, Any]:
    """Gradients and their norm with FSDP's sharded parameters, by torch alone: accelerate has no
    FSDP on a CPU."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from tests.unit.trainer.losses import tiny
    from tests.unit.trainer.step import support
    from trainer.losses import LanguageModelLoss, LossPath, token_factors
    from trainer.step.gradients import clip_gradients

    mesh = init_device_mesh("cpu", (ranks,))
    found = {}
    for path in ("fused", "plain"):
        model = tiny.llama()
        module = LanguageModelLoss(model, LossPath(path, "test"))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)
        mine = support.batches(support.blocks_of("packed"), tiny.row_weights(), 2, rank, ranks)
        factors = [
            token_factors(b.labels_BT[:, 1:], b.row_weights_B, tiny.token_weights()) for b in mine
        ]
        weight_sum = torch.stack([one.sum() for one in factors]).sum()
        torch.distributed.all_reduce(weight_sum)
        for number, (batch, weights) in enumerate(zip(mine, factors, strict=True), 1):
            module.set_requires_gradient_sync(number == len(mine))
            losses = module(batch.ids_BT, batch.positions_BT, batch.labels_BT)
            ((weights * losses).sum() * ranks / weight_sum).backward()
        whole = {name: p.grad.full_tensor() for name, p in model.named_parameters()}
        optimizer = torch.optim.AdamW(module.parameters())
        found[path] = (whole, float(clip_gradients(module, optimizer, 0.0)))
    return found
