"""The parts of a decoder: embeddings, layers, final norm, head, and what is besides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from streamfreq.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Anatomy:
    """Parameters by part, each in one part only: a tied head's are the embeddings'.

    layers come from the first to the last. tied: head and input embeddings are one tensor.
    """

    embeddings: tuple[nn.Parameter, ...]
    layers: tuple[tuple[nn.Parameter, ...], ...]
    rest: tuple[nn.Parameter, ...]
    head: tuple[nn.Parameter, ...]
    tied: bool

    def parts(self) -> list[tuple[str, tuple[nn.Parameter, ...]]]:
        """Name and parameters of every part that has any, from the bottom to the top."""
        named = [("embeddings", self.embeddings)]
        named += [(f"layer {number}", layer) for number, layer in enumerate(self.layers)]
        named += [("final norm", self.rest), ("head", self.head)]
        return [(name, parameters) for name, parameters in named if parameters]


def anatomy_of(model: nn.Module) -> Anatomy:
    """The parts of a transformers model, without peft's adapters.

    Raises ConfigError for a model without a list of layers.
    """
    whole: Any = model
    embeddings, head = whole.get_input_embeddings(), whole.get_output_embeddings()
    stack = _layers(model)
    seen: set[int] = set()

    def take(module: nn.Module | None) -> tuple[nn.Parameter, ...]:
        found = []
        for parameter in () if module is None else module.parameters():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                found.append(parameter)
        return tuple(found)

    embedding_parameters = take(embeddings)
    layers = tuple(take(layer) for layer in stack)
    tied = head is not None and head.weight is embeddings.weight
    head_parameters = take(head)
    # Position embeddings belong to the embeddings; what is left is the final norm.
    positions = [
        parameter
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and module is not embeddings
        for parameter in take(module)
    ]
    rest = take(model)
    return Anatomy((*embedding_parameters, *positions), layers, rest, head_parameters, tied)


def _layers(model: nn.Module) -> nn.ModuleList:
    """The longest list of modules: the decoder's layers."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        raise ConfigError(
            f"freezing: {type(model).__name__} has no list of layers; only models that have one "
            "can be frozen in part"
        )
    return max(lists, key=len)
