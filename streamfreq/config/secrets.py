"""What must never be shown: which values are secret, and how text is made safe to show."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from pydantic import SecretStr

from streamfreq.config.sections import KafkaConfig, RedisConfig, Section

HIDDEN = "********"

_SECRET_NAME = re.compile(
    r"passw|pwd|secret|(?<!tik)token(?!iz)|jaas|oauth|credential|api_?key|private_?key",
    re.IGNORECASE,
)
_QUERY = re.compile(r"(?P<name>[?&][^=&]*)=[^&#]*")


def looks_secret(name: str) -> bool:
    """Whether a key of that name is likely to hold a secret.

    >>> looks_secret("sasl.jaas.config"), looks_secret("client_id")
    (True, False)
    """
    return _SECRET_NAME.search(name) is not None


def redact_url(url: str) -> str:
    """`url` without its password.

    Everything between the first colon and the last @ is taken for the password, so that one that
    is not percent-encoded is hidden too. A lone word before the @ may be a password as well.

    >>> redact_url("redis://me:p@ss/w#rd@host:6379/0")
    'redis://me:********@host:6379/0'
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    user_and_password, at, host = rest.rpartition("@")
    if at:
        user, colon, _ = user_and_password.partition(":")
        rest = (f"{user}:{HIDDEN}" if colon else HIDDEN) + "@" + host
    return _QUERY.sub(
        lambda match: f"{match['name']}={HIDDEN}" if looks_secret(match["name"]) else match[0],
        scheme + separator + rest,
    )


def redact_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` with every value hidden whose key, at any depth, looks secret."""
    return {
        key: HIDDEN if looks_secret(key) and value not in ("", None) else _redact(value)
        for key, value in options.items()
    }


def secret_texts(config: Section) -> list[str]:
    """Every secret that the configuration holds, to be blotted out of logs and messages."""
    sections = [value for _, value in config if isinstance(value, Section)]
    fields = [value for section in sections for _, value in section]
    texts = [value.get_secret_value() for value in fields if isinstance(value, SecretStr)]
    redis, kafka = getattr(config, "redis", RedisConfig()), getattr(config, "kafka", KafkaConfig())
    user_and_password, at, _ = redis.url.partition("://")[2].rpartition("@")
    if at:
        password = user_and_password.partition(":")[2] or user_and_password
        texts += [password, unquote(password)]
    texts += _secret_options(kafka.options)
    return [text for text in dict.fromkeys(texts) if text]


def _secret_options(options: Mapping[str, Any]) -> Iterator[str]:
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from _secret_options(value)
        elif looks_secret(key) and isinstance(value, str):
            yield value


def _redact(value: Any) -> Any:
    if isinstance(value, Mapping):
        return redact_options(value)
    if isinstance(value, list | tuple):
        return [_redact(item) for item in value]
    return redact_url(value) if isinstance(value, str) and "://" in value else value
