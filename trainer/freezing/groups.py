"""Parameter groups for AdamW: a learning rate per layer, weight decay for matrices alone."""

from __future__ import annotations

from typing import Any

from torch import nn

from trainer.config import FreezingConfig, OptimizerConfig
from trainer.freezing.plan import Plan


def parameter_groups(
    plan: Plan, optimizer: OptimizerConfig, freezing: FreezingConfig
) -> list[dict[str, Any]]:
    """Groups with name, params, lr, weight_decay: every trainable parameter once.

    With a layer_decay of d the head and the final norm have the learning rate itself, the last
    of L layers times d, the one before d^2, the embeddings d^(L + 1) (Clark et al., "ELECTRA",
    ICLR 2020, section 3). Vectors, which are norms and biases, have no weight decay.
    """
    groups: list[dict[str, Any]] = []
    taken: set[int] = set()
    for name, parameters in plan.anatomy.parts():
        factor = rate_factor(plan, name, freezing.layer_decay)
        groups += _groups(name, parameters, factor, optimizer, taken)
    left = tuple(item for item in plan.model.parameters() if id(item) not in taken)
    return groups + _groups("adapters" if plan.lora else "other", left, 1.0, optimizer, taken)


def rate_factor(plan: Plan, part: str, layer_decay: float) -> float:
    """What the learning rate of a part is multiplied by."""
    layers = len(plan.anatomy.layers)
    if part == "embeddings":
        return layer_decay ** (layers + 1)
    if part.startswith("layer "):
        return layer_decay ** (layers - int(part.removeprefix("layer ")))
    return 1.0


def _groups(
    name: str,
    parameters: tuple[nn.Parameter, ...],
    factor: float,
    optimizer: OptimizerConfig,
    taken: set[int],
) -> list[dict[str, Any]]:
    trainable = [item for item in parameters if item.requires_grad and id(item) not in taken]
    taken.update(id(item) for item in parameters)
    rate = optimizer.learning_rate * factor
    matrices = [item for item in trainable if item.ndim >= 2]
    vectors = [item for item in trainable if item.ndim < 2]
    groups = [
        {"name": f"{name} matrices", "params": matrices, "weight_decay": optimizer.weight_decay},
        {"name": f"{name} vectors", "params": vectors, "weight_decay": 0.0},
    ]
    return [{**group, "lr": rate} for group in groups if group["params"]]
