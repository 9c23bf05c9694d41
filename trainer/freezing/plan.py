"""Which parameters train, from the configuration; LoRA by peft."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

from torch import nn

from streamfreq.errors import ConfigError
from trainer.config import FreezingConfig, LoraConfig
from trainer.freezing.anatomy import Anatomy, anatomy_of


@dataclass(frozen=True, slots=True)
class Plan:
    """The model to train, its parts, and the layers that begin to train later.

    thaws: from the layer that begins first, (layer, first step with updates), steps from 1.
    """

    model: nn.Module
    anatomy: Anatomy
    thaws: tuple[tuple[int, int], ...] = ()
    lora: bool = False
    notes: tuple[str, ...] = ()


def prepare(model: nn.Module, freezing: FreezingConfig, lora: LoraConfig) -> Plan:
    """Freeze what is to be frozen, add adapters; the plan's model is the one to train.

    Raises ConfigError for contradictions, naming fields and numbers.
    """
    anatomy = anatomy_of(model)
    if lora.rank:
        return _with_adapters(model, anatomy, freezing, lora)
    if lora.target_modules or lora.save_modules:
        raise ConfigError("lora.target_modules and lora.save_modules need lora.rank above 0")
    _check(freezing, len(anatomy.layers))
    frozen = _frozen_layers(freezing, len(anatomy.layers))
    notes = []
    if freezing.embeddings or freezing.only_last_layers:
        _freeze(anatomy.embeddings)
        if anatomy.tied:
            notes.append("the head is tied to the embeddings: it is frozen with them")
    thaws = _thaws(frozen, freezing.unfreeze_every_steps)
    if not thaws:
        for layer in frozen:
            _freeze(anatomy.layers[layer])
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("freezing: nothing would train; freeze less")
    return Plan(model, anatomy, thaws, notes=tuple(notes))


def _check(freezing: FreezingConfig, layers: int) -> None:
    first, last = freezing.first_layers, freezing.only_last_layers
    if first and last:
        raise ConfigError("freezing.first_layers and freezing.only_last_layers: give one of them")
    if first > layers or last > layers:
        name = "first_layers" if first > layers else "only_last_layers"
        raise ConfigError(f"freezing.{name} = {max(first, last)}: the model has {layers} layers")
    if freezing.unfreeze_every_steps and not (first or last):
        raise ConfigError(
            "freezing.unfreeze_every_steps: no layer is frozen; set first_layers or "
            "only_last_layers"
        )


def _frozen_layers(freezing: FreezingConfig, layers: int) -> range:
    if freezing.only_last_layers:
        return range(layers - freezing.only_last_layers)
    return range(freezing.first_layers)


def _thaws(frozen: range, every: int) -> tuple[tuple[int, int], ...]:
    """From the last frozen layer to the first: when each begins to train."""
    if not every:
        return ()
    return tuple(
        (layer, number * every + 1) for number, layer in enumerate(reversed(frozen), start=1)
    )


def _freeze(parameters: tuple[nn.Parameter, ...]) -> None:
    for parameter in parameters:
        parameter.requires_grad_(False)


def _with_adapters(
    model: nn.Module, anatomy: Anatomy, freezing: FreezingConfig, lora: LoraConfig
) -> Plan:
    if freezing != FreezingConfig(embedding_gradient_scale=freezing.embedding_gradient_scale):
        raise ConfigError(
            "lora.rank: with adapters all else is frozen already; leave the section freezing out "
            "(lora.save_modules trains modules whole)"
        )
    _check_names(model, "target_modules", lora.target_modules)
    _check_names(model, "save_modules", lora.save_modules)
    if anatomy.tied and _reached(_ends(model), lora.target_modules):
        raise ConfigError(
            "lora.target_modules: head and embeddings are tied in this model, so an adapter of "
            "one would change the other when it is merged; name modules of the layers"
        )
    if anatomy.tied and lora.save_modules:
        raise ConfigError(
            "lora.save_modules: head and embeddings are tied in this model, a copy of one would "
            "come apart from the other; leave it empty"
        )
    from peft import LoraConfig as PeftLora
    from peft import get_peft_model

    whole: Any = model
    settings = PeftLora(
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]
        lora_dropout=lora.dropout,
        target_modules=lora.target_modules or "all-linear",
        modules_to_save=lora.save_modules or None,
        task_type="CAUSAL_LM",
    )
    try:
        adapted = get_peft_model(whole, settings)
    except ValueError as error:
        line = str(error).splitlines()[0]
        raise ConfigError(f"lora.target_modules = {lora.target_modules}: {line}") from error
    return Plan(adapted, anatomy, lora=True)


def _check_names(model: nn.Module, field: str, names: list[str]) -> None:
    """peft passes over a name that fits nothing, as long as another one fits."""
    modules = [name for name, _ in model.named_modules() if name]
    for name in names:
        if not _reached(modules, [name]):
            known = {module.rsplit(".", 1)[-1] for module in modules}
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "name modules like q_proj"
            raise ConfigError(f"lora.{field}: the model has no module {name}; {hint}")


def _ends(model: nn.Module) -> list[str]:
    """Names of the input embeddings and the head."""
    whole: Any = model
    ends = (whole.get_input_embeddings(), whole.get_output_embeddings())
    return [name for name, module in model.named_modules() if any(module is end for end in ends)]


def _reached(modules: list[str], names: list[str]) -> bool:
    """Whether a name is one of the modules', whole or its last parts, as peft reads it."""
    return any(
        module == name or module.endswith(f".{name}") for module in modules for name in names
    )
