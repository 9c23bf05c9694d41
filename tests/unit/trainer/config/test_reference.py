"""The trainer's configuration is documented field by field, and its example is complete."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

from streamfreq.config.fields import field_paths
from streamfreq.config.load import load_sections
from tests.architecture.source_files import ROOT
from trainer.config import TrainerConfig
from trainer.config.example import example_config
from trainer.config.reference import configuration_markdown


def test_the_reference_is_up_to_date() -> None:
    written = (ROOT / "docs" / "trainer-configuration.md").read_text(encoding="utf-8")
    assert written == configuration_markdown()


def test_every_field_has_a_docstring() -> None:
    def undocumented(section: type) -> Iterator[str]:
        for name, field in section.model_fields.items():
            if hasattr(field.annotation, "model_fields"):
                yield from undocumented(field.annotation)
            elif not field.description:
                yield f"{section.__name__}.{name}"

    assert list(undocumented(TrainerConfig)) == []


def test_the_example_names_every_field() -> None:
    text = example_config()
    for path in field_paths(TrainerConfig):
        assert str(path[-1]) in text
    config = TrainerConfig.model_validate(tomllib.loads(text))
    assert config.kafka.topics == ["my-topic"]


def test_the_commented_defaults_are_the_defaults() -> None:
    comment = re.compile(r"# \S|#$")
    lines = [line for line in example_config().splitlines() if not comment.match(line)]
    text = "\n".join(line.removeprefix("#") for line in lines)
    config = TrainerConfig.model_validate(tomllib.loads(text))
    given = TrainerConfig.model_validate(tomllib.loads(example_config()))
    assert config.model_dump() == given.model_dump()


def test_the_group_is_the_trainers_own() -> None:
    config = load_sections(
        TrainerConfig, None, overrides=["kafka.topics=a", "model.path=m", "name=x"], env={}
    )
    assert config.group_id == "streamfreq-trainer-x"
    assert config.tokenizer_config.path == "m"
