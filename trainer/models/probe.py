"""What a model can do, found out by a look or a small forward pass.

Shape legend: T tokens of a row.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn

from streamfreq.errors import ConfigError
from trainer.modes import evaluating

log = logging.getLogger("trainer.models")

_DROPOUT_FIELDS = ("attention_dropout", "attn_pdrop", "attention_dropout_prob")


@torch.no_grad()
def isolates_documents(model: nn.Module) -> bool:
    """Whether documents side by side in a row, told apart by positions alone, see only themselves.

    Two documents are run in one row and alone; the model's logits have to be the same. Raises
    ConfigError for a model that takes no positions.
    """
    device = next(model.parameters()).device
    first, second = torch.arange(3, 8, device=device), torch.arange(9, 16, device=device)
    with evaluating(model):
        alone = [_logits(model, ids, [len(ids)]) for ids in (first, second)]
        packed = _logits(model, torch.cat((first, second)), [len(first), len(second)])
    difference = (packed - torch.cat(alone)).abs().max()
    scale = torch.cat(alone).abs().max().clamp_min(1e-6)
    exact = next(model.parameters()).dtype in (torch.float32, torch.float64)
    return bool(difference <= (1e-4 if exact else 2e-2) * scale)


def has_dropout(model: nn.Module) -> bool:
    """Whether a forward pass in training mode differs from one in evaluation."""
    if any(_drops(module) for module in model.modules()):
        return True
    config: Any = getattr(model, "config", None)
    return any(float(getattr(config, name, 0.0) or 0.0) > 0 for name in _DROPOUT_FIELDS)


def _drops(module: nn.Module) -> bool:
    """A dropout layer, or a module that keeps its rate as a number, as OPT's and Bloom's do."""
    if isinstance(module, nn.Dropout):
        return module.p > 0
    return any(
        "drop" in name and isinstance(value, float) and value > 0
        for name, value in vars(module).items()
    )


def compile_body(body: nn.Module) -> None:
    """Compile the part that makes the hidden states, in place; where that fails it runs as it is.

    The body and not the whole model, because the fused loss goes around the model's forward.
    """
    import torch._dynamo

    device = next(body.parameters()).device
    try:
        # Without a compiler at hand the model's first call would fail in the middle of a step.
        torch.compile(_double)(torch.ones(8, device=device))
        body.compile()
    except RuntimeError as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        log.warning("model.compile: %s; the model runs without it", line)
        return
    # What is found only in the model itself falls back, too.
    torch._dynamo.config.suppress_errors = True


def _double(numbers: Tensor) -> Tensor:
    return numbers * 2


def _logits(model: nn.Module, ids_T: Tensor, lengths: list[int]) -> Tensor:
    positions_T = torch.cat([torch.arange(length, device=ids_T.device) for length in lengths])
    try:
        output = model(input_ids=ids_T[None], position_ids=positions_T[None], use_cache=False)
    except TypeError as error:
        raise ConfigError(
            f"model: {type(model).__name__} takes no position_ids, which training needs ({error}); "
            "choose another architecture"
        ) from error
    logits: Tensor = output.logits[0].float()
    return logits
