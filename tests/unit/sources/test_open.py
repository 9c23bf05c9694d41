"""The adapters that a configuration names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamfreq.clock import SystemClock
from streamfreq.config import Config
from streamfreq.errors import ConfigError
from streamfreq.sources import open_dead_letters, open_source
from streamfreq.sources.dead_letters import FileDeadLetters
from streamfreq.sources.files import FilesSource
from streamfreq.sources.kafka import KafkaDeadLetters, KafkaSource


def config(kind: str, **value: Any) -> Config:
    return Config.model_validate(
        {
            "source": {"kind": kind},
            "kafka": {"topics": ["news"]},
            "files": {"paths": ["a.txt"]},
            "value": value,
        }
    )


def test_the_kind_of_source() -> None:
    assert isinstance(open_source(config("kafka"), SystemClock()), KafkaSource)
    assert isinstance(open_source(config("files"), SystemClock()), FilesSource)


def test_the_place_for_dead_letters(tmp_path: Path) -> None:
    file = str(tmp_path / "dead.jsonl")
    both = {"dead_letter_topic": "dead", "dead_letter_file": file}
    assert open_dead_letters(config("kafka")) is None
    assert isinstance(open_dead_letters(config("kafka", **both)), KafkaDeadLetters)
    assert isinstance(open_dead_letters(config("files", **both)), FileDeadLetters)
    with pytest.raises(ConfigError, match=r"value\.dead_letter_topic needs source\.kind = kafka"):
        open_dead_letters(config("files", dead_letter_topic="dead"))


def test_a_wrong_option_is_told_before_anything_connects() -> None:
    wrong = Config.model_validate({"kafka": {"topics": ["news"], "options": {"nothing": 1}}})
    with pytest.raises(ConfigError, match="nothing"):
        open_source(wrong, SystemClock())
