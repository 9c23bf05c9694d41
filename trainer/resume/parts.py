"""Nested state dicts as two files: numbers and text as JSON, arrays and tensors as safetensors.

No pickle. Arrays keep their type, shape and bits; tuples become lists.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError

from streamfreq.errors import DataRefused

Parts = Mapping[str, Any]
"""State dicts by the name of the part: values are JSON values, arrays, tensors, or dicts."""

FACTS_FILE = "state.json"
ARRAYS_FILE = "state.safetensors"
FORMAT = 1
_ARRAY = "__array__"
_TENSOR = "__tensor__"


def write_parts(folder: Path, parts: Parts) -> None:
    """Write both files; the one with the facts last."""
    tensors: dict[str, torch.Tensor] = {}
    facts = {name: _take(value, name, tensors) for name, value in parts.items()}
    safetensors.torch.save_file(tensors, folder / ARRAYS_FILE)
    text = json.dumps({"format": FORMAT, "parts": facts}, ensure_ascii=False)
    (folder / FACTS_FILE).write_text(text, encoding="utf-8")


def read_parts(folder: Path) -> dict[str, Any]:
    """What `write_parts` wrote; raises DataRefused, naming the folder, when it is damaged."""
    try:
        stored = json.loads((folder / FACTS_FILE).read_text(encoding="utf-8"))
        if stored["format"] > FORMAT:
            raise DataRefused(f"{folder}: written by a newer version; upgrade streamfreq")
        tensors = safetensors.torch.load_file(folder / ARRAYS_FILE)
        return {name: _give(value, tensors) for name, value in stored["parts"].items()}
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DataRefused(
            f"{folder}: the resume state is damaged ({error}); delete this folder to go back to "
            "the one before"
        ) from error


def _take(value: Any, path: str, tensors: dict[str, torch.Tensor]) -> Any:
    """The value as JSON; arrays move into `tensors` under their path."""
    if isinstance(value, np.ndarray):
        tensors[path] = torch.from_numpy(np.array(value, order="C"))
        return {_ARRAY: path}
    if isinstance(value, torch.Tensor):
        tensors[path] = value.detach().cpu().contiguous().clone()
        return {_TENSOR: path}
    if isinstance(value, Mapping):
        return {str(key): _take(item, f"{path}/{key}", tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_take(item, f"{path}/{index}", tensors) for index, item in enumerate(value)]
    return value.item() if isinstance(value, np.generic) else value


def _give(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(value, dict):
        if _ARRAY in value:
            return tensors[value[_ARRAY]].numpy()
        if _TENSOR in value:
            return tensors[value[_TENSOR]]
        return {key: _give(item, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_give(item, tensors) for item in value]
    return value
