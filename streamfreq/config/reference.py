"""docs/configuration.md, written from the sections: `python -m streamfreq.config.reference`."""

from __future__ import annotations

import sys
import typing
from collections.abc import Collection, Iterator
from typing import Any

from annotated_types import Ge, Gt, Le, Lt
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from streamfreq.config.fields import is_duration, is_section
from streamfreq.config.sections import (
    Config,
    DecayConfig,
    FactorConfig,
    Section,
    WeightsConfig,
)
from streamfreq.config.show import plain_value
from streamfreq.config.toml import toml_value

_HEAD = """\
# Configuration

<!-- Written by `python -m streamfreq.config.reference > docs/configuration.md`; a test checks. -->

One TOML file (`-c FILE`), then the environment, then `--set`; each overrides the one before.

- File: a section per part, as below. `streamfreq init` writes an example with every field.
- Environment: `STREAMFREQ__SECTION__FIELD`, two underscores between the names, in any case:
  `STREAMFREQ__KAFKA__TOPICS=a,b`. This is the place for passwords.
- Command line: `--set section.field=value`, as often as needed: `--set kafka.topics=a,b`.

In the environment and `--set`, lists may be written with commas (`a,b`), and numbers, `true`,
`false`, arrays and inline tables as in TOML. Text needs no quotes. Naming any table under `weights`
replaces the default one.

`--show-config` prints what results. Secrets never show there, in logs or in errors: password
fields, the password in `redis.url`, and every `kafka.options` entry whose name looks like a secret.
`streamfreq check` also names options that are set and have no effect.

A *duration* is written `30s`, `5m`, `1.5h`, `7d`, `2w`, `inf`, or as a number of seconds.
"""

_KINDS = {bool: "true, false", int: "whole number", float: "number", str: "text"}


def configuration_markdown() -> str:
    """The reference of every section and field."""
    config = Config.model_validate({"kafka": {"topics": ["my-topic"]}})
    lines = [_HEAD, "## The top of the file", "", *_table([_row(config, "job", "job")])]
    lines += sections_markdown(Config)
    lines += _section(WeightsConfig, "weights.NAME")
    lines += _section(FactorConfig, "weights.NAME.product[]")
    lines += _section(DecayConfig, "counting.decay")
    return "\n".join(lines) + "\n"


def sections_markdown(root: type[Section], but: Collection[str] = ()) -> Iterator[str]:
    """A table for each section of the tree `root`, less those named in `but`."""
    for name, field in root.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, Section) and name not in but:
            yield from _section(annotation, name)


def top_markdown(config: Section) -> list[str]:
    """A table of the fields that stand outside of any section."""
    fields = type(config).model_fields.items()
    names = [name for name, field in fields if not is_section(field.annotation)]
    return _table([_row(config, name, name) for name in names])


def _section(section: type[Section], path: str) -> Iterator[str]:
    yield ""
    yield f"## `{path}`"
    yield ""
    yield section.__doc__ or ""
    yield ""
    fields = section.model_fields.items()
    required: dict[str, Any] = {name: None for name, field in fields if field.is_required()}
    defaults = section.model_construct(**required)
    yield from _table([_row(defaults, name, f"{path}.{name}") for name in section.model_fields])


def _table(rows: list[tuple[str, str, str, str]]) -> list[str]:
    head = ["| field | allowed | default | meaning |", "|---|---|---|---|"]
    return head + [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows
    ]


def _row(section: Section, name: str, path: str) -> tuple[str, str, str, str]:
    field = type(section).model_fields[name]
    value = plain_value(section, name)
    default = "required" if field.is_required() else "not set" if value is None else ""
    return (
        f"`{path}`",
        _allowed(name, field),
        default or f"`{toml_value(value)}`",
        " ".join((field.description or "").split()),
    )


def _allowed(name: str, field: FieldInfo) -> str:
    annotation: Any = field.annotation
    arguments = typing.get_args(annotation)
    if is_duration(field):
        return "duration"
    if name == "half_lives":
        return "list of durations"
    if typing.get_origin(annotation) is typing.Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if typing.get_origin(annotation) is list:
        return "list of text" if arguments[0] is str else "list"
    if annotation is SecretStr:
        return "text, secret"
    kind = _KINDS.get(annotation, "table")
    return f"{kind}{_bounds(field)}"


def _bounds(field: FieldInfo) -> str:
    words = []
    for limit in field.metadata:
        if isinstance(limit, Ge):
            words.append(f"at least {limit.ge}")
        elif isinstance(limit, Gt):
            words.append(f"above {limit.gt}")
        elif isinstance(limit, Le):
            words.append(f"at most {limit.le}")
        elif isinstance(limit, Lt):
            words.append(f"below {limit.lt}")
    return ", " + ", ".join(words) if words else ""


if __name__ == "__main__":
    sys.stdout.write(configuration_markdown())
