"""Which way the loss takes: fused (never all logits) where that is exact and pays, else plain."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from streamfreq.errors import ConfigError
from trainer.config import LossConfig
from trainer.losses import fused
from trainer.losses.parts import body_of, causal_model, head_of
from trainer.modes import evaluating

SMALL_VOCABULARY = 4096
"""On a CPU fused is the slower one below (up to 4 times for V = 64, 1.3 for 2,000, even at 8,000),
and the logits of so few tokens take little memory."""

log = logging.getLogger("trainer.losses")


@dataclass(frozen=True, slots=True)
class LossPath:
    """The way from hidden states to losses, and why: a phrase for the log."""

    name: Literal["fused", "plain"]
    reason: str


def choose_path(model: nn.Module, loss: LossConfig, device: torch.device | str) -> LossPath:
    """The path for this model on this device; it is logged once.

    Call it before DDP or FSDP wrap the model, with the model where it will run. Raises
    ConfigError where loss.path = "fused" and the model or the device does not allow it.
    """
    path = _choose(model, loss, torch.device(device))
    log.info("loss path: %s (%s)", path.name, path.reason)
    return path


def _choose(model: nn.Module, loss: LossConfig, device: torch.device) -> LossPath:
    if loss.path == "plain":
        return LossPath("plain", "as configured")
    obstacle = _obstacle(model, device)
    if loss.path == "fused":
        if obstacle:
            raise ConfigError(
                f'loss.path = "fused" is not possible: {obstacle}; use "auto" or "plain"'
            )
        return LossPath("fused", "as configured")
    if obstacle:
        return LossPath("plain", obstacle)
    vocabulary = head_of(model).weight.shape[0]
    if vocabulary < SMALL_VOCABULARY:
        return LossPath("plain", f"a vocabulary of {vocabulary} is small, all logits cost little")
    return LossPath("fused", f"all logits of {vocabulary} tokens are never held")


def _obstacle(model: nn.Module, device: torch.device) -> str:
    """Why the fused path can't be taken, as a phrase; empty if it can."""
    if not fused.is_available(device):
        return f"PyTorch {torch.__version__} has no fused loss for the device {device.type}"
    inner = causal_model(model)
    if not isinstance(getattr(inner, getattr(inner, "base_model_prefix", ""), None), nn.Module):
        return f"{type(inner).__name__} does not say which part of it makes the hidden states"
    head: Any = head_of(model)
    if type(head) is not nn.Linear:
        kind = f"{type(head).__module__.split('.')[0]}'s {type(head).__name__}"
        return f"the head is not a plain linear layer but {kind}"
    return _difference(model, device)


@torch.no_grad()
def _difference(model: nn.Module, device: torch.device) -> str:
    """What the model does besides head(body(ids)), seen by one small forward pass.

    Values of a new model are so small that a soft cap hardly changes them; therefore the head's
    output is replaced by large numbers, which must come out of the model as they are.
    """
    head = head_of(model)
    vocabulary = head.weight.shape[0]
    ids_BT = torch.arange(8, device=device).reshape(2, 4) % vocabulary
    inputs = {"input_ids": ids_BT, "position_ids": torch.arange(4, device=device).expand(2, 4)}
    seen: list[Tensor] = []

    def replace(_module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        seen.append(given[0])
        wide = torch.linspace(-200, 200, output.numel(), device=output.device)
        seen.append(wide.to(output.dtype).reshape(output.shape))
        return seen[-1]

    with evaluating(model):
        hidden_BTD = body_of(model)(**inputs, use_cache=False).last_hidden_state
        handle = head.register_forward_hook(replace)
        try:
            logits_BTV = model(**inputs, use_cache=False).logits
        finally:
            handle.remove()
    if len(seen) != 2 or not _same(seen[0], hidden_BTD):
        return "the model changes the hidden states in front of its head"
    if not _same(seen[1], logits_BTV):
        return "the model changes the logits behind its head (a soft cap or a scale)"
    return ""


def _same(one: Tensor, other: Tensor) -> bool:
    tolerance = 1e-5 if one.dtype in (torch.float32, torch.float64) else 1e-2
    return one.shape == other.shape and torch.allclose(
        one.float(), other.float(), rtol=tolerance, atol=tolerance
    )
