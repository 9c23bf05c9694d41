"""The two parts of a causal language model: its body up to the hidden states, and its head."""

from __future__ import annotations

from typing import cast

from torch import nn


def causal_model(model: nn.Module) -> nn.Module:
    """The transformers model itself, without peft's wrapper (its adapters stay inside)."""
    unwrap = getattr(model, "get_base_model", None)
    return cast(nn.Module, unwrap()) if callable(unwrap) else model


def body_of(model: nn.Module) -> nn.Module:
    """What turns token ids into hidden states; raises AttributeError where it has no name."""
    inner = causal_model(model)
    return cast(nn.Module, getattr(inner, str(inner.base_model_prefix)))


def head_of(model: nn.Module) -> nn.Linear:
    """What turns hidden states into logits; `choose_path` has seen that it is a plain Linear."""
    inner = causal_model(model)
    return cast(nn.Linear, inner.get_output_embeddings())  # type: ignore[operator]
