"""Fixtures that every test folder shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest_plugins = ["tests.services.redis_fixtures", "tests.services.kafka_fixtures"]


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder with real streams and tokenizers, or a skip that says where it is sought."""
    folder = Path(
        os.environ.get("STREAMFREQ_SHARED", Path(__file__).resolve().parents[2] / "shared")
    )
    if not (folder / "data").is_dir():
        pytest.skip(f"no real streams in {folder}; set STREAMFREQ_SHARED to a folder that has them")
    return folder
