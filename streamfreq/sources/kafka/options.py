"""The section [kafka] in the client's own option names, checked before anything connects."""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from streamfreq.config import KafkaConfig
from streamfreq.errors import ConfigError

_OURS = {
    "auto_offset_reset": "kafka.start and kafka.expired_offset say where reading begins",
    "bootstrap_servers": "set kafka.bootstrap_servers",
    "enable_auto_commit": "the checkpoints hold the position",
    "group_id": "set kafka.group_id",
    "kafka_client": "streamfreq makes its own",
    "key_deserializer": "values are read as bytes",
    "value_deserializer": "values are read as bytes",
    "key_serializer": "values are written as bytes",
    "value_serializer": "values are written as bytes",
    "transactional_id": "dead letters are written at least once",
}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER", "AWS_MSK_IAM")
_BOOTSTRAP_TIMEOUT_MS = 10_000
_METADATA_MAX_AGE_MS = 30_000


def consumer_options(config: KafkaConfig, group_id: str) -> dict[str, Any]:
    """What KafkaConsumer gets; raises ConfigError for what can't be right."""
    ours = {
        **_connection(config),
        "group_id": group_id,
        "enable_auto_commit": False,
        # A missing offset is ours to handle; any other value would jump in silence.
        "auto_offset_reset": "none",
        "allow_auto_create_topics": False,
        "isolation_level": config.isolation_level,
        "max_poll_records": config.max_poll_records,
        "session_timeout_ms": config.session_timeout_ms,
        "heartbeat_interval_ms": min(3_000, config.session_timeout_ms // 3),
        "max_poll_interval_ms": config.max_poll_interval_ms,
        # A long fetch delays what was resumed or sought meanwhile.
        "fetch_max_wait_ms": 200,
        # In pure Python the checksum costs twice as much as all the rest; TCP has its own.
        "check_crcs": importlib.util.find_spec("crc32c") is not None,
        "metrics_enabled": False,
    }
    _check_pattern(config)
    return ours | _checked(config.options)


def producer_options(config: KafkaConfig) -> dict[str, Any]:
    """What KafkaProducer gets."""
    ours = {
        **_connection(config),
        "acks": "all",
        "max_block_ms": _BOOTSTRAP_TIMEOUT_MS,
        "delivery_timeout_ms": 30_000,
        "request_timeout_ms": 10_000,
        "max_request_size": 64 << 20,
        "metrics_enabled": False,
    }
    return ours | _only(KafkaProducer.DEFAULT_CONFIG, _checked(config.options))


def admin_options(config: KafkaConfig) -> dict[str, Any]:
    """What KafkaAdminClient gets."""
    ours = {**_connection(config), "request_timeout_ms": _BOOTSTRAP_TIMEOUT_MS}
    return ours | _only(KafkaAdminClient.DEFAULT_CONFIG, _checked(config.options))


def servers(config: KafkaConfig) -> str:
    """The brokers as they stand in messages."""
    return ",".join(config.bootstrap_servers)


def _connection(config: KafkaConfig) -> dict[str, Any]:
    _check_servers(config.bootstrap_servers)
    options: dict[str, Any] = {
        "bootstrap_servers": list(config.bootstrap_servers),
        "client_id": "streamfreq",
        "bootstrap_timeout_ms": _BOOTSTRAP_TIMEOUT_MS,
        "metadata_max_age_ms": _METADATA_MAX_AGE_MS,
        "reconnect_backoff_max_ms": 5_000,
        "security_protocol": config.security_protocol,
    }
    if config.security_protocol.startswith("SASL"):
        options |= _sasl(config)
    if config.security_protocol.endswith("SSL"):
        options |= _ssl(config)
    return options


def _sasl(config: KafkaConfig) -> dict[str, Any]:
    mechanism = config.sasl_mechanism
    if mechanism not in _MECHANISMS:
        raise ConfigError(
            f"kafka.sasl_mechanism = {mechanism!r}: {config.security_protocol} needs one of "
            + ", ".join(_MECHANISMS)
        )
    if mechanism != "PLAIN" and not mechanism.startswith("SCRAM"):
        return {"sasl_mechanism": mechanism}
    if not config.sasl_username:
        raise ConfigError(f"kafka.sasl_username is empty: {mechanism} needs a user")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": config.sasl_username,
        "sasl_plain_password": config.sasl_password.get_secret_value(),
    }


def _ssl(config: KafkaConfig) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        path = getattr(config, name)
        if path and not Path(path).is_file():
            raise ConfigError(f"kafka.{name} = {path!r}: there is no such file")
        options[name] = path or None
    options["ssl_password"] = config.ssl_password.get_secret_value() or None
    return options


def _check_servers(addresses: Iterable[str]) -> None:
    for address in addresses:
        _, _, port = address.rpartition(":")
        if not re.fullmatch(r"\S+?:\d{1,5}", address) or not 0 < int(port) < 65536:
            raise ConfigError(
                f"kafka.bootstrap_servers = {address!r}: write HOST:PORT, like localhost:9092"
            )


def _check_pattern(config: KafkaConfig) -> None:
    try:
        re.compile(config.topic_pattern)
    except re.error as error:
        raise ConfigError(
            f"kafka.topic_pattern = {config.topic_pattern!r} is no regular expression: {error}"
        ) from None


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    known = set(KafkaConsumer.DEFAULT_CONFIG) | set(KafkaProducer.DEFAULT_CONFIG)
    for name in options:
        if name in _OURS:
            raise ConfigError(f"kafka.options.{name} can't be set: {_OURS[name]}")
        if name not in known:
            close = difflib.get_close_matches(name, known - set(_OURS), n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"kafka.options.{name}: the Kafka client has no such option{hint}")
    return dict(options)


def _only(known: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in known}
