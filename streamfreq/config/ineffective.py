"""Options that are set and have no effect, so that nobody waits for one to work."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from streamfreq.config.sections import Config, Section, WeightsConfig


@dataclass(frozen=True, slots=True)
class _Rule:
    """Fields (dotted, with wildcards) that do nothing while `idle` holds, and why."""

    fields: str
    why: str
    idle: Callable[[Config], bool]


def _no_protocol(word: str) -> Callable[[Config], bool]:
    return lambda config: word not in config.kafka.security_protocol


def _from_kafka(config: Config) -> bool:
    return config.source.kind == "kafka"


def _from_files(config: Config) -> bool:
    return config.source.kind == "files"


def _plain_text(config: Config) -> bool:
    return config.value.format == "text"


def _no_dead_letters(config: Config) -> bool:
    return "dead-letter" not in (config.value.on_bad, config.value.on_invalid_utf8)


def _words(config: Config) -> bool:
    kind = config.tokenizer.kind
    return kind == "words" or (kind == "auto" and config.tokenizer.path == "words")


def _in_memory(config: Config) -> bool:
    return config.redis.url.startswith("memory:")


_RULES = (
    _Rule("files.*", 'source.kind is "kafka"', _from_kafka),
    _Rule("kafka.*", 'source.kind is "files"', _from_files),
    _Rule(
        "kafka.lookback_half_lives",
        'kafka.start is not "lookback"',
        lambda config: config.kafka.start != "lookback",
    ),
    _Rule("kafka.sasl_*", "kafka.security_protocol is no SASL protocol", _no_protocol("SASL")),
    _Rule("kafka.ssl_*", "kafka.security_protocol is no SSL protocol", _no_protocol("SSL")),
    _Rule("value.text_field", 'value.format is "text"', _plain_text),
    _Rule("value.time_field", 'value.format is "text"', _plain_text),
    _Rule("value.time_unit", "there is no value.time_field", lambda config: not _json_time(config)),
    _Rule("value.dead_letter_*", "no policy is dead-letter", _no_dead_letters),
    _Rule(
        "value.dead_letter_file",
        "value.dead_letter_topic is set",
        lambda config: _from_kafka(config) and bool(config.value.dead_letter_topic),
    ),
    _Rule("value.dead_letter_topic", 'source.kind is "files"', _from_files),
    _Rule(
        "text.phone_regions",
        "text.mask has no phone",
        lambda config: "phone" not in config.text.mask,
    ),
    _Rule("tokenizer.words_*", "the tokenizer is not words", lambda config: not _words(config)),
    _Rule("tokenizer.engine", "the tokenizer is words", _words),
    _Rule("tokenizer.threads", "the tokenizer is words", _words),
    _Rule(
        "tokenizer.tiktoken_encoding",
        "the tokenizer is no .tiktoken file",
        lambda config: (
            config.tokenizer.kind != "tiktoken" and not config.tokenizer.path.endswith(".tiktoken")
        ),
    ),
    _Rule(
        "counting.on_late",
        "counting.max_lateness_seconds is inf",
        lambda config: math.isinf(config.counting.max_lateness_seconds),
    ),
    _Rule("redis.*", "redis.url is memory://", _in_memory),
    _Rule(
        "redis.ssl_*",
        "redis.url is not rediss://",
        lambda config: not config.redis.url.startswith("rediss://"),
    ),
    _Rule(
        "schedule.publish_interval_seconds",
        "schedule.publish_cron is set",
        lambda config: bool(config.schedule.publish_cron),
    ),
    _Rule(
        "telemetry.http_host",
        "telemetry.http_port is -1",
        lambda config: config.telemetry.http_port == -1,
    ),
)


def _json_time(config: Config) -> bool:
    return config.value.format == "json" and bool(config.value.time_field)


def ineffective(config: Config) -> list[str]:
    """A line for each option that differs from its default and does nothing, with the reason."""
    lines = []
    for name in _changed(config):
        rule = next((rule for rule in _RULES if _applies(rule, name, config)), None)
        if rule is not None:
            lines.append(f"{name} has no effect: {rule.why}")
    for name, weights in config.weights.items():
        lines.extend(_weights_lines(f"weights.{name}", weights))
    return lines


def _applies(rule: _Rule, name: str, config: Config) -> bool:
    if name in ("redis.url", "redis.prefix"):
        return False
    return fnmatchcase(name, rule.fields) and rule.idle(config)


def _changed(config: Config) -> Iterator[str]:
    """The dotted fields, one level below a section, that differ from their defaults."""
    for section_name in type(config).model_fields:
        section = getattr(config, section_name)
        if isinstance(section, Section):
            for name, field in type(section).model_fields.items():
                if getattr(section, name) != field.get_default(call_default_factory=True):
                    yield f"{section_name}.{name}"


def _weights_lines(path: str, weights: WeightsConfig) -> Iterator[str]:
    if weights.strength == 0 and weights != WeightsConfig(strength=0):
        yield f"{path}: all but strength has no effect: strength is 0, every weight is 1"
