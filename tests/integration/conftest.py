"""No daemon outlives its test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration import harness


@pytest.fixture(autouse=True)
def no_daemon_is_left() -> Iterator[None]:
    yield
    while harness.RUNNING:
        harness.RUNNING.pop().end()
