"""Layers that begin to train later, and gradients of the embeddings that are scaled."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from trainer.freezing.plan import Plan


class GradualUnfreezing:
    """Drops the gradients of layers whose turn has not come.

    Their parameters require gradients from the beginning, since DDP and FSDP must not see another
    set of parameters later; so the backward pass costs what it costs with all of them. AdamW
    leaves a parameter without gradient alone, weight decay included.
    """

    def __init__(self, plan: Plan) -> None:
        self._waiting = [(plan.anatomy.layers[layer], first) for layer, first in plan.thaws]

    def before_update(self, step: int) -> None:
        """Between backward pass and clipping of this step, from 1; depends on the number alone."""
        for parameters, first in self._waiting:
            if step < first:
                for parameter in parameters:
                    parameter.grad = None


def scale_embedding_gradient(model: nn.Module, scale: float) -> None:
    """Multiply the gradient that reaches the input embeddings by `scale`.

    It is done where the lookup comes out, so a tied head's own gradient stays as it is.
    """
    if scale == 1.0:
        return
    whole: Any = model

    def scaled(gradient: Tensor) -> Tensor:
        return gradient * scale

    def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(scaled)  # type: ignore[no-untyped-call]

    whole.get_input_embeddings().register_forward_hook(hook)
