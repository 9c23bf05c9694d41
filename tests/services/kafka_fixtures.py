"""Fixtures with a real broker: one for the session, and topics of each test's own."""

from __future__ import annotations

import gc
import os
import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.services.kafka import BrokerMissingError, KafkaBroker

Test = TypeVar("Test", bound=Callable[..., None])


def leaves_sockets(test: Test) -> Test:
    """Marks a test in which connections to a broker fail.

    kafka-python 3.0 does not close those sockets, it leaves them to the garbage collector.
    """
    ignore = pytest.mark.filterwarnings("ignore:unclosed <(socket|ssl):ResourceWarning")
    return ignore(pytest.mark.usefixtures("client_garbage")(test))


@pytest.fixture
def client_garbage() -> Iterator[None]:
    """Collects what the client left while the test's own warning filter still holds."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    """The session's broker, with a TLS listener; without Java a loud skip (in CI: a failure)."""
    broker = KafkaBroker(tls=True)
    try:
        broker.__enter__()
    except BrokerMissingError as missing:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"CI must run the broker tests: {missing}", pytrace=False)
        pytest.skip(f"NO KAFKA BROKER, so nothing is tested against one: {missing}")
    try:
        yield broker
    finally:
        broker.close()


@pytest.fixture
def new_topic(kafka_broker: KafkaBroker) -> Callable[..., str]:
    """Makes a topic with a name of its own: `new_topic(partitions=1, configs=None)`."""

    def make(partitions: int = 1, prefix: str = "topic", **configs: object) -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        return kafka_broker.create_topic(name, partitions, dotted)

    return make
