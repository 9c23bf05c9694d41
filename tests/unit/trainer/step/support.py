"""Steps on tiny models, for one process and for each of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from accelerate import Accelerator
from torch import Tensor, nn

from tests.unit.trainer.losses import tiny
from trainer.blocks import Batch, Block
from trainer.config import LossConfig, OptimizerConfig, StepConfig
from trainer.losses import LanguageModelLoss, LossPath
from trainer.step import TrainStep, build_optimizer, build_schedule
from trainer.token_weights import TokenTables


def tables(weights_V: Tensor | None = None, bias_V: Tensor | None = None) -> TokenTables:
    import dataclasses

    neutral = TokenTables.neutral(tiny.V)
    return dataclasses.replace(
        neutral,
        weights_V=neutral.weights_V if weights_V is None else weights_V,
        bias_V=neutral.bias_V if bias_V is None else bias_V,
    )


@dataclass
class Rig:
    """A TrainStep, and the gradients that it was about to use."""

    step: TrainStep
    model: nn.Module
    schedule: Any
    gradients: dict[str, Tensor] = field(default_factory=dict)

    def parameters(self) -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in self.model.named_parameters()}


def rig(
    model: nn.Module,
    path: str = "plain",
    loss: LossConfig | None = None,
    accelerator: Accelerator | None = None,
    **step: Any,
) -> Rig:
    accelerator = accelerator or Accelerator(cpu=True)
    config = OptimizerConfig(learning_rate=1e-2)
    groups = [{"params": list(model.parameters())}]
    optimizer = build_optimizer(groups, config)
    schedule = build_schedule(optimizer, config, 0)
    module = LanguageModelLoss(model, LossPath(path, "test"))  # type: ignore[arg-type]
    module, prepared = accelerator.prepare(module, optimizer)
    made: Rig

    def keep() -> None:
        made.gradients = {
            name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None
        }

    config_of_step = StepConfig(**({"max_grad_norm": 0.0} | step))
    train_step = TrainStep(
        module, prepared, schedule, accelerator, loss or LossConfig(), config_of_step, keep
    )
    made = Rig(train_step, model, schedule)
    return made


def batches(
    blocks: Sequence[Block], weights: Sequence[float], forwards: int, rank: int = 0, ranks: int = 1
) -> list[Batch]:
    """This rank's share of the rows, in so many batches."""
    share = len(blocks) // ranks
    size = share // forwards
    starts = [rank * share + at * size for at in range(forwards)]
    return [
        Batch.of(blocks[at : at + size], row_weights=list(weights)[at : at + size]) for at in starts
    ]


def blocks_of(layout: str) -> list[Block]:
    return [tiny.block(row) for row in tiny.rows_of_documents(layout == "packed")]
