"""The section [kafka] becomes the client's options, or one clear line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from streamfreq.config import KafkaConfig
from streamfreq.errors import ConfigError
from streamfreq.sources.kafka.options import admin_options, consumer_options, producer_options


def config(**values: Any) -> KafkaConfig:
    return KafkaConfig.model_validate({"topics": ["news"], **values})


def test_fields_get_the_client_s_names(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.touch()
    options = consumer_options(
        config(
            bootstrap_servers="a:1,b:2",
            isolation_level="read_uncommitted",
            max_poll_records=7,
            session_timeout_ms=6_000,
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_username="me",
            sasl_password="hush",
            ssl_cafile=str(ca),
        ),
        "my-group",
    )
    wanted = {
        "bootstrap_servers": ["a:1", "b:2"],
        "group_id": "my-group",
        "isolation_level": "read_uncommitted",
        "max_poll_records": 7,
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 2_000,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "allow_auto_create_topics": False,
        "sasl_plain_username": "me",
        "sasl_plain_password": "hush",
        "ssl_cafile": str(ca),
        "ssl_certfile": None,
    }
    assert wanted.items() <= options.items()


def test_every_option_is_one_of_the_client() -> None:
    section = config(options={"fetch_min_bytes": 5, "linger_ms": 9, "metric_group_prefix": "x"})
    assert producer_options(section)["linger_ms"] == 9
    for made, kind in (
        (producer_options(section), KafkaProducer),
        (admin_options(section), KafkaAdminClient),
        (consumer_options(config(), "g"), KafkaConsumer),
    ):
        assert set(made) <= set(kind.DEFAULT_CONFIG)


def test_options_win_over_fields() -> None:
    section = config(max_poll_records=7, options={"max_poll_records": 3})
    assert consumer_options(section, "g")["max_poll_records"] == 3


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"options": {"fetch_min_byte": 1}}, "kafka.options.fetch_min_byte.*fetch_min_bytes"),
        ({"options": {"group_id": "x"}}, "kafka.options.group_id.*kafka.group_id"),
        ({"options": {"auto_offset_reset": "latest"}}, "auto_offset_reset.*kafka.start"),
        ({"options": {"value_deserializer": "x"}}, "value_deserializer"),
        ({"bootstrap_servers": ["localhost"]}, "'localhost'.*HOST:PORT"),
        ({"bootstrap_servers": ["localhost:99999"]}, "HOST:PORT"),
        ({"topics": [], "topic_pattern": "news("}, "kafka.topic_pattern.*news"),
        ({"security_protocol": "SASL_SSL"}, "kafka.sasl_mechanism = ''.*PLAIN"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "MAGIC"},
            "kafka.sasl_mechanism = 'MAGIC'",
        ),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"},
            "kafka.sasl_username is empty",
        ),
        (
            {"security_protocol": "SSL", "ssl_cafile": "/no/such/ca.pem"},
            "kafka.ssl_cafile = '/no/such/ca.pem'",
        ),
    ],
)
def test_what_can_t_be_right_is_one_line(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        consumer_options(config(**values), "g")
    message = str(caught.value)
    assert re.search(says, message)
    assert "\n" not in message


def test_ipv6_addresses_are_fine() -> None:
    assert consumer_options(config(bootstrap_servers=["[::1]:9092"]), "g")
