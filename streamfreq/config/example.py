"""The commented example configuration, written from the sections themselves."""

from __future__ import annotations

import textwrap
import typing
from collections.abc import Collection, Iterator

from streamfreq.config.fields import children, is_section
from streamfreq.config.sections import Config, FactorConfig, Section
from streamfreq.config.show import plain_value
from streamfreq.config.toml import toml_assignment

_SET: dict[str, object] = {"job": "my-job", "kafka.topics": ["my-topic"]}
"""What the example sets; everything else is its default behind a #."""

_SAMPLES: dict[str, object] = {"counting.decay": {"alpha": 0.5, "window_seconds": 60.0}}
"""What stands behind the # for fields whose default has no form in TOML."""

_HEAD = """\
# streamfreq configuration. Check it with `streamfreq check -c FILE`.
# A line like `#name = value` shows a default: take the # away to change it.
# The environment overrides this file (STREAMFREQ__KAFKA__TOPICS=a,b), --set overrides both.
# Durations are written like 30s, 5m, 1h, 7d or inf; a plain number is seconds."""


def example_config() -> str:
    """TOML text with every field, its docstring and its default; `load_config` accepts it."""
    config = Config.model_validate(
        {"job": _SET["job"], "kafka": {"topics": _SET["kafka.topics"]}},
    )
    lines = [_HEAD, "", *_field_lines(config, "job", "job", _SET)]
    for name in Config.model_fields:
        value = getattr(config, name)
        if name == "weights":
            lines += section_lines(value["default"], "weights.default", _SET)
            lines += _factor_lines()
        elif isinstance(value, Section):
            lines += section_lines(value, name, _SET)
    return "\n".join(lines) + "\n"


def example_of(config: Section, head: str, given: Collection[str]) -> str:
    """TOML text with every field of any tree of sections; those in `given` (dotted) are set."""
    lines = [head]
    for name in type(config).model_fields:
        if not isinstance(getattr(config, name), Section):
            lines += ["", *_field_lines(config, name, name, given)]
    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, Section):
            lines += section_lines(value, name, given)
    return "\n".join(lines) + "\n"


def section_lines(section: Section, path: str, given: Collection[str]) -> Iterator[str]:
    """The section with every field, its docstring, and its value, behind a # unless given."""
    yield ""
    yield ""
    yield f"[{path}]"
    yield from _comment(type(section).__doc__ or "")
    for name in children(type(section)):
        yield ""
        yield from _field_lines(section, name, f"{path}.{name}", given)


def _field_lines(section: Section, name: str, path: str, given: Collection[str]) -> Iterator[str]:
    field = type(section).model_fields[name]
    yield from _comment(field.description or "")
    if is_section(field.annotation):
        return
    value = plain_value(section, name)
    if value is None:
        value = _SAMPLES[path]
    mark = "" if path in given else "#"
    for line in toml_assignment(name, value):
        yield mark + line


def _factor_lines() -> Iterator[str]:
    """What a factor of a product may hold."""
    yield ""
    yield "# A factor of the product has these fields:"
    for name, field in FactorConfig.model_fields.items():
        choices = typing.get_args(field.annotation)
        plain_choices = [choice for choice in choices if isinstance(choice, str)]
        listed = f" One of {', '.join(plain_choices)}." if plain_choices else ""
        yield from _comment(f"- {name}: {field.description}{listed}", hanging="    ")


def _comment(text: str, hanging: str = "") -> list[str]:
    paragraph = " ".join(text.split())
    return textwrap.wrap(
        paragraph,
        width=98,
        initial_indent="# ",
        subsequent_indent="# " + hanging,
        break_long_words=False,
    )
