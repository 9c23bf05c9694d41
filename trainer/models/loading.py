"""A causal language model from a folder, the hub, or a configuration; mistakes in one line."""

from __future__ import annotations

import difflib
import json
import logging
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError, StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from streamfreq.errors import ConfigError
from streamfreq.tokenization.huggingface import hub_has_an_address
from trainer.config import ModelConfig

log = logging.getLogger("trainer.models")

_CAUSAL: Any = transformers.AutoModelForCausalLM

# What the libraries raise for values, files and weights that don't fit; each has a base of its own.
_REFUSALS = (
    *(OSError, ValueError, TypeError, RuntimeError, KeyError, AttributeError, ImportError),
    *(ZeroDivisionError, StrictDataclassError, SafetensorError),
)


def load_model(config: ModelConfig, seed: int, vocab_size: int) -> PreTrainedModel:
    """The model on the CPU, in training mode, with caches off.

    vocab_size: the tokenizer's; a new model gets it, a loaded one has to have as many ids at
    least. seed: of a new model's parameters. Raises ConfigError, naming the field and the way out.
    """
    _be_quiet()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _new(config, vocab_size) if config.new else _stored(config)
    embeddings: Any = model.get_input_embeddings()
    size = int(embeddings.weight.shape[0])
    if size < vocab_size:
        raise ConfigError(
            f"model: it has {size} token ids, but the tokenizer has {vocab_size}; name the model's "
            "own tokenizer (tokenizer.path)"
        )
    model.config.use_cache = False
    if config.gradient_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    model.train()
    return model


def _be_quiet() -> None:
    logs: Any = transformers.logging
    logs.set_verbosity_error()
    logs.disable_progress_bar()


def _new(config: ModelConfig, vocab_size: int) -> PreTrainedModel:
    fields = dict(config.new)
    kind = fields.pop("model_type")
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        near = difflib.get_close_matches(kind, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, n=1)
        hint = f"did you mean {near[0]}?" if near else "one like llama, gpt2, qwen3"
        raise ConfigError(f"model.new.model_type = {kind}: no causal language model; {hint}")
    known = AutoConfig.for_model(kind).to_dict()
    for name in fields:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"model.new.{name}: {kind} has no such field{hint}")
    try:
        built = AutoConfig.for_model(kind, **{"vocab_size": vocab_size, **fields})
        return _typed(
            _CAUSAL.from_config(
                built, **_options(config, "float32" if config.dtype == "auto" else config.dtype)
            )
        )
    except _REFUSALS as error:
        raise ConfigError(f"model.new: {kind} can't be made so: {_one_line(error)}") from error


def _stored(config: ModelConfig) -> PreTrainedModel:
    name = config.path
    folder = Path(name).expanduser()
    local = folder.is_dir()
    if local and not (folder / "config.json").is_file():
        raise ConfigError(f"model.path: {folder} has no config.json; name a transformers folder")
    if not local and (folder.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1):
        raise ConfigError(f"model.path: there is no folder {folder}; name one, or a hub name")
    if not local and not hub_has_an_address():
        folder, local = _cached(name), True
    _require_causal(config, folder if local else None)
    try:
        model, report = _CAUSAL.from_pretrained(
            str(folder) if local else name,
            output_loading_info=True,
            trust_remote_code=config.trust_remote_code,
            local_files_only=local,
            **_options(config, config.dtype),
        )
    except _REFUSALS as error:
        way = "" if local else "; is the name right, and the hub reachable or the model cached?"
        raise ConfigError(f"model.path: {name} can't be loaded: {_one_line(error)}{way}") from error
    missing = sorted(report["missing_keys"])
    if missing:
        log.warning(
            "model.path: %s lacks %d tensors, which begin at random: %s",
            *(name, len(missing), ", ".join(missing[:3])),
        )
    return _typed(model)


def _cached(name: str) -> Path:
    """The hub's copy on this disk; asking the library for a name would try the network for long."""
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, ValueError) as error:
        raise ConfigError(
            f"model.path: {name} is no folder here, and as a name on the Hugging Face hub it could "
            "not be fetched (no connection, and no copy in its cache); name a transformers folder"
        ) from error


def _require_causal(config: ModelConfig, folder: Path | None) -> None:
    """A folder's config.json tells before anything is loaded."""
    if folder is None:
        return
    try:
        told = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        kind = told["model_type"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"model.path: {folder}/config.json names no model_type") from None
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not config.trust_remote_code:
        raise ConfigError(
            f"model.path: {folder} holds a {kind}, which is no causal language model; "
            "others are not supported"
        )


def _options(config: ModelConfig, dtype: str) -> dict[str, Any]:
    options: dict[str, Any] = {"dtype": dtype if dtype == "auto" else getattr(torch, dtype)}
    if config.attention != "auto":
        options["attn_implementation"] = config.attention
    return options


def _typed(model: Any) -> PreTrainedModel:
    assert isinstance(model, PreTrainedModel)
    return model


def _one_line(error: Exception) -> str:
    """The first line of a message, with the next one where it only announces that."""
    if isinstance(error, KeyError):
        return f"there is no {error}"
    lines = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
    count = 2 if lines[0].endswith(":") else 1
    return " ".join(lines[:count])[:200]
