"""A configuration as TOML text that holds no secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import SecretStr

from streamfreq.config.durations import format_duration, parse_duration
from streamfreq.config.fields import is_duration
from streamfreq.config.secrets import HIDDEN, redact_options, redact_url
from streamfreq.config.sections import KafkaConfig, RedisConfig, Section
from streamfreq.config.toml import toml_assignment, toml_key


def show_config(config: Section) -> str:
    """`config` as TOML: secrets as ********, durations as people write them.

    Without secrets the text loads as an equal configuration.
    """
    return "\n".join(_section_lines(config, ())) + "\n"


def plain_value(section: Section, name: str) -> object:
    """The value of a section's field as TOML can hold it, safe to show; None: it is not set."""
    value = getattr(section, name)
    if isinstance(value, SecretStr):
        return HIDDEN if value.get_secret_value() else ""
    if isinstance(section, RedisConfig) and name == "url":
        return redact_url(value)
    if isinstance(section, KafkaConfig) and name == "options":
        return redact_options(value)
    if is_duration(type(section).model_fields[name]):
        return readable_duration(value)
    if name == "half_lives":
        return [readable_duration(seconds) for seconds in value]
    return _plain(value)


def readable_duration(seconds: float) -> float | str:
    """The duration as people write it where that is exact, else the number of seconds."""
    text = format_duration(seconds)
    return text if parse_duration(text) == seconds else seconds


def _section_lines(section: Section, path: tuple[str, ...]) -> Iterator[str]:
    fields = {name: getattr(section, name) for name in type(section).model_fields}
    if path:
        yield ""
        yield f"[{'.'.join(map(toml_key, path))}]"
    for name, value in fields.items():
        if not _has_header(name, value):
            plain = plain_value(section, name)
            if plain is not None:
                yield from toml_assignment(name, plain)
    for name, value in fields.items():
        if isinstance(value, Section) and _has_header(name, value):
            yield from _section_lines(value, (*path, name))
        elif _has_header(name, value):
            for key, item in value.items():
                yield from _section_lines(item, (*path, name, key))


def _has_header(name: str, value: object) -> bool:
    """Whether the value is written as [section]s; a small one inside a section is not."""
    return (isinstance(value, Section) and name != "decay") or name == "weights"


def _plain(value: object) -> object:
    if isinstance(value, Section):
        return {name: plain_value(value, name) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
