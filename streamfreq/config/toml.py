"""Values as TOML text, for `--show-config`, the example file and the reference."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_WIDE = 80


def toml_key(name: str) -> str:
    """A key, quoted only where it has to be."""
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)


def toml_value(value: object) -> str:
    """One value on one line; a table becomes an inline table.

    >>> toml_value({"a": [1, True, "x"], "b": float("inf")})
    '{ a = [1, true, "x"], b = inf }'

    Raises TypeError for what TOML has no form for (None among them).
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        pairs = [f"{toml_key(str(key))} = {toml_value(item)}" for key, item in value.items()]
        return "{ " + ", ".join(pairs) + " }" if pairs else "{}"
    raise TypeError(f"{type(value).__name__} has no form in TOML")


def toml_assignment(name: str, value: object) -> list[str]:
    """The lines of `name = value`; a long list has one line for each item."""
    line = f"{toml_key(name)} = {toml_value(value)}"
    if len(line) <= _WIDE or not isinstance(value, list | tuple):
        return [line]
    return [f"{toml_key(name)} = [", *(f"  {toml_value(item)}," for item in value), "]"]


def _float(value: float) -> str:
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return "nan" if math.isnan(value) else repr(value)
