"""A wrong configuration in words: one line each, with the field, the value, what is allowed.

No line ever shows a secret: values of secret fields, of tables, and of unknown fields stay out.
"""

from __future__ import annotations

import difflib
import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from streamfreq.config.fields import (
    Path,
    annotation_at,
    children,
    dotted,
    field_paths,
    is_secret,
    is_section,
)
from streamfreq.config.secrets import redact_url
from streamfreq.config.sections import Config, Section
from streamfreq.config.toml import toml_value

_LONGEST_VALUE = 60
_KEY_OF_TABLE = "[key]"

_ALLOWED = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be below {lt}",
    "string_too_long": "must have at most {max_length} characters",
    "literal_error": "must be {expected}",
    "missing": "is required",
}
_KINDS = {
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "string": "must be text",
    "list": "must be a list",
    "dict": "must be a table",
    "model": "must be a table",
}


def problem_lines(
    error: ValidationError, origin: Callable[[Path], str], root: type[Section] = Config
) -> list[str]:
    """One line for each mistake; `origin` says where the value at a path came from."""
    return [_line(details, origin, root) for details in error.errors(include_url=False)]


def suggest(path: Path, root: type[Section] = Config) -> str:
    """The known name nearest to an unknown one, dotted; empty when none is near."""
    *above, name = path
    near = difflib.get_close_matches(str(name), children(annotation_at(tuple(above), root)), n=1)
    if near:
        return dotted((*above, near[0]))
    known = {str(candidate[-1]): dotted(candidate) for candidate in field_paths(root)}
    elsewhere = difflib.get_close_matches(str(name), known, n=1, cutoff=0.8)
    return known[elsewhere[0]] if elsewhere else ""


def shown(path: Path, value: object, root: type[Section] = Config) -> str:
    """The value for people, shortened; empty where showing it could tell a secret."""
    annotation = annotation_at(path, root)
    scalar = isinstance(value, str | int | float)
    if is_secret(path, root) or is_section(annotation) or typing.get_origin(annotation) is dict:
        return ""
    if not scalar and not (isinstance(value, list) and path[:1] != ("redis",)):
        return ""
    try:
        text = toml_value(redact_url(value) if isinstance(value, str) else value)
    except TypeError:
        return ""
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def _line(details: ErrorDetails, origin: Callable[[Path], str], root: type[Section]) -> str:
    path: Path = details["loc"]
    if path[-1:] == (_KEY_OF_TABLE,):
        path = path[:-1]
        return f"{dotted(path)}: the name {_allowed(details, path, root)} (from {origin(path)})"
    source = origin(path)
    if details["type"] == "extra_forbidden":
        near = suggest(path, root)
        hint = f"; did you mean {near}?" if near else _siblings(path, root)
        return f"{dotted(path)}: no such field{hint} (from {source})"
    if details["type"] == "missing":
        return f"{dotted(path)} is required (from {source})"
    value = shown(path, details["input"], root) if path else ""
    subject = f"{dotted(path)} = {value}: " if value else f"{dotted(path)}: " if path else ""
    line = f"{subject}{_allowed(details, path, root)}"
    return f"{line} (from {source})" if path else line


def _allowed(details: ErrorDetails, path: Path, root: type[Section]) -> str:
    kind = details["type"]
    context: Mapping[str, Any] = details.get("ctx", {})
    if kind == "value_error":
        reason = str(context["error"])
        return reason if isinstance(details["input"], dict) else f"must be {reason}"
    if kind == "literal_error":
        return f"must be {context['expected'].replace(chr(39), '')}{_near_choice(details, root)}"
    if kind == "string_pattern_mismatch":
        return "must be letters, digits, '.', '_' or '-', and begin with a letter or a digit"
    if kind in _ALLOWED:
        return _ALLOWED[kind].format(**{key: _plain(value) for key, value in context.items()})
    fallback = "is not allowed" if is_secret(path, root) else details["msg"]
    return _KINDS.get(kind.partition("_")[0], fallback)


def _near_choice(details: ErrorDetails, root: type[Section]) -> str:
    choices = typing.get_args(annotation_at(details["loc"], root))
    near = difflib.get_close_matches(
        str(details["input"]).lower(), [str(choice).lower() for choice in choices], n=1
    )
    return f"; did you mean {near[0]}?" if near else ""


def _siblings(path: Path, root: type[Section]) -> str:
    names = children(annotation_at(path[:-1], root))
    return f"; there are {', '.join(names)}" if names else ""


def _plain(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value
