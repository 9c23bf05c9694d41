"""`streamfreq check` and brokers: one that is away, one that refuses, a real one.

Each in a process of its own: what the Kafka client leaves behind when it fails goes with it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.services.kafka import KafkaBroker
from tests.services.redis import free_port
from tests.unit.cli.samples import json_lines, run_process, settings, statuses

NO_STORE = ("redis.url=memory://check",)
AWAY = f"kafka.bootstrap_servers=127.0.0.1:{free_port()}"
CANARY = "c4n4ry-sEcrEt"


def test_a_broker_that_is_away_stops_no_other_check() -> None:
    secrets = (f"kafka.sasl_password={CANARY}", f"kafka.options={{jaas='{CANARY}'}}")
    result = run_process("check", "--json", *settings(*NO_STORE, *secrets, "kafka.topics=t", AWAY))
    assert result.returncode in (2, 3)
    assert statuses(result)["source"] == "fail"
    assert statuses(result)["store"] == "warn"
    assert CANARY not in result.stdout + result.stderr


def test_a_broker_that_is_away_is_a_service() -> None:
    sasl = (
        "kafka.security_protocol=SASL_PLAINTEXT",
        "kafka.sasl_mechanism=PLAIN",
        "kafka.sasl_username=reader",
        f"kafka.sasl_password={CANARY}",
    )
    result = run_process("check", "--json", *settings(*NO_STORE, *sasl, "kafka.topics=t", AWAY))
    assert result.returncode == 3
    assert "can't be reached" in result.stdout
    assert result.stderr == ""
    assert CANARY not in result.stdout + result.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ("kafka.security_protocol=SASL_SSL", "kafka.sasl_mechanism=NONSENSE"),
        ("kafka.security_protocol=SSL", "kafka.ssl_certfile=missing.pem"),
        ("kafka.options.no_such_option=1",),
    ],
    ids=" ".join,
)
def test_settings_that_can_not_work_need_no_broker(wrong: tuple[str, ...]) -> None:
    result = run_process("check", "--json", *settings(*NO_STORE, *wrong, "kafka.topics=t", AWAY))
    assert result.returncode == 2, result.stdout
    assert statuses(result)["source"] == "fail"


@pytest.mark.broker
def test_a_broker_and_its_topics(kafka_broker: KafkaBroker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    address = f"kafka.bootstrap_servers={kafka_broker.bootstrap}"

    def check(*more: str):
        return run_process("check", "--json", *settings(*NO_STORE, address, *more))

    there = check(f"kafka.topics={topic}")
    assert there.returncode == 0, there.stdout
    messages = [line["message"] for line in json_lines(there) if line["check"] == "topic"]
    assert messages == [f"{topic}: 3 partitions"]
    missing = check(f"kafka.topics={topic},not-there")
    assert missing.returncode == 3
    assert "not-there is not on this broker" in missing.stdout
    pattern = check(f"kafka.topic_pattern={topic[:-1]}.")
    assert "matches 1 topics with 3 partitions" in pattern.stdout
    letters = ("value.on_bad=dead-letter", "value.dead_letter_topic=no-letters")
    assert statuses(check(f"kafka.topics={topic}", *letters))["dead letters"] == "warn"
