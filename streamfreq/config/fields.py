"""The tree of sections as data: what stands at a dotted path, and which paths there are."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import SecretStr

from streamfreq.config.durations import parse_duration
from streamfreq.config.sections import Config, Section

Path = tuple[str | int, ...]


def annotation_at(path: Path, root: type[Section] = Config) -> Any:
    """The type of what stands at `path` from the root; None where anything may stand.

    >>> annotation_at(("kafka", "max_poll_records"))
    <class 'int'>
    """
    annotation: Any = root
    for name in path:
        annotation = _below(annotation, name)
    return annotation


def children(annotation: Any) -> list[str]:
    """The field names of a section; none for anything else."""
    return list(annotation.model_fields) if is_section(annotation) else []


def is_section(annotation: Any) -> bool:
    """Whether the type is a section, with fields of its own."""
    return isinstance(annotation, type) and issubclass(annotation, Section)


def is_secret(path: Path, root: type[Section] = Config) -> bool:
    """Whether the value at `path`, or one above it, is secret."""
    return any(annotation_at(path[:length], root) is SecretStr for length in range(len(path) + 1))


def is_duration(field: Any) -> bool:
    """Whether a field holds seconds that people write like 5m."""
    return any(getattr(item, "func", None) is parse_duration for item in field.metadata)


def dotted(path: Path) -> str:
    """The path as people write it.

    >>> dotted(("weights", "default", "product", 0, "horizon"))
    'weights.default.product[0].horizon'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def field_paths(annotation: Any = Config, prefix: Path = ()) -> Iterator[Path]:
    """Every section and field below a section, in order; names of free tables are left out."""
    for name in children(annotation):
        path = (*prefix, name)
        yield path
        yield from field_paths(_below(annotation, name), path)


def _below(annotation: Any, name: str | int) -> Any:
    if is_section(annotation):
        field = annotation.model_fields.get(name)
        return None if field is None else _strip_none(field.annotation)
    arguments = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if origin is dict:
        return _strip_none(arguments[1])
    if origin is list:
        return _strip_none(arguments[0])
    return None


def _strip_none(annotation: Any) -> Any:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        rest = [item for item in typing.get_args(annotation) if item is not type(None)]
        return rest[0] if len(rest) == 1 else None
    return None if annotation is Any else annotation
