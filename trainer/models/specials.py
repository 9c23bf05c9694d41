"""The tokens in front of and behind each document, and the one that pads.

The text itself never gives special ids (see the tokenizers' port), so these are added by id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamfreq.errors import ConfigError
from trainer.config import DataConfig

_STARTS = ("<s>", "<bos>", "<|begin_of_text|>", "[BOS]")
_ENDS = ("</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "[EOS]")
_PADS = ("<pad>", "[PAD]", "<|pad|>")


@dataclass(frozen=True, slots=True)
class DocumentTokens:
    """Ids; None: nothing is added there."""

    start_id: int | None
    end_id: int | None
    pad_id: int


def document_tokens(
    model_config: Any, tokenizer_path: str, data: DataConfig, *, is_new: bool
) -> DocumentTokens:
    """As `data` wants it, from the model's configuration, or the tokenizer's files.

    A new model's configuration only holds its type's defaults, so the tokenizer's files count
    there. A start token that is the end token, too (as GPT-2's), is not put in front of a
    document: the one behind the document before stands there already. Raises ConfigError when
    a token is demanded that neither has.
    """
    named = _named_tokens(Path(tokenizer_path).expanduser())
    told = _told_names(Path(tokenizer_path).expanduser())
    start, end, pad = (
        _first(named, (*told.get(role, ()), *names))
        for role, names in (("bos_token", _STARTS), ("eos_token", _ENDS), ("pad_token", _PADS))
    )
    if not is_new:
        start = _id(model_config, "bos_token_id", start)
        end = _id(model_config, "eos_token_id", end)
        pad = _id(model_config, "pad_token_id", pad)
    if data.document_start == "bos" and start is None:
        raise ConfigError("data.document_start = bos: neither model nor tokenizer has one")
    if data.document_end == "eos" and end is None:
        raise ConfigError("data.document_end = eos: neither model nor tokenizer has one")
    padding = (pad, end, start)
    if data.document_start == "none" or (data.document_start == "auto" and start == end):
        start = None
    if data.document_end == "none":
        end = None
    size = int(model_config.vocab_size)
    for name, id_ in (("data.document_start", start), ("data.document_end", end)):
        if id_ is not None and not 0 <= id_ < size:
            raise ConfigError(f"{name}: the id {id_} is not among the model's {size}; set none")
    chosen = next((id_ for id_ in padding if id_ is not None and 0 <= id_ < size), 0)
    return DocumentTokens(start, end, chosen)


def _id(config: Any, name: str, default: int | None) -> int | None:
    """The model's own id; of several ends the first."""
    value = getattr(config, name, None)
    if isinstance(value, list | tuple):
        value = value[0] if value else None
    return int(value) if isinstance(value, int) and value >= 0 else default


def _first(named: Mapping[str, int], names: tuple[str, ...]) -> int | None:
    return next((named[name] for name in names if name in named), None)


def _named_tokens(path: Path) -> dict[str, int]:
    """The special tokens of a tokenizer.json, by their text; none for other kinds of files."""
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        return {item["content"]: int(item["id"]) for item in told["added_tokens"]}
    except (OSError, ValueError, KeyError, TypeError, UnicodeDecodeError):
        return {}


def _told_names(path: Path) -> dict[str, tuple[str, ...]]:
    """What tokenizer_config.json beside the tokenizer calls its start, end and padding."""
    folder = path if path.is_dir() else path.parent
    try:
        told = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        items = {role: told.get(f"{role}_token") for role in ("bos", "eos", "pad")}
    except (OSError, ValueError, AttributeError):
        return {}
    names = {
        role: item.get("content") if isinstance(item, dict) else item
        for role, item in items.items()
    }
    return {f"{role}_token": (name,) for role, name in names.items() if isinstance(name, str)}
