"""The commented example configuration of the trainer, written from the sections themselves."""

from __future__ import annotations

from streamfreq.config.example import example_of
from trainer.config.sections import TrainerConfig

_GIVEN = ("name", "output", "kafka.topics", "model.path", "subscriber.job")

_HEAD = """\
# streamfreq-trainer configuration. Check it with `streamfreq-trainer check -c FILE`.
# A line like `#name = value` shows a default: take the # away to change it.
# The environment overrides this file (STREAMFREQ_TRAINER__KAFKA__TOPICS=a,b), --set overrides both.
# Durations are written like 30s, 5m, 1h, 7d or inf; a plain number is seconds."""


def example_config() -> str:
    """TOML text with every field, its docstring and its default; the trainer accepts it."""
    config = TrainerConfig.model_validate(
        {
            "name": "my-run",
            "output": "runs/my-run",
            "kafka": {"topics": ["my-topic"]},
            "model": {"path": "/models/my-model"},
            "subscriber": {"job": "my-job"},
        }
    )
    return example_of(config, _HEAD, _GIVEN)
