"""docs/trainer-configuration.md, from the sections: `python -m trainer.config.reference`."""

from __future__ import annotations

import sys

from streamfreq.config.reference import sections_markdown, top_markdown
from trainer.config.sections import TrainerConfig

_SHARED = ("source", "kafka", "files", "value", "text", "tokenizer", "redis")

_HEAD = """\
# Configuration of the trainer

<!-- Written by `python -m trainer.config.reference > docs/trainer-configuration.md`; a test checks. -->

One TOML file (`-c FILE`), then the environment (`STREAMFREQ_TRAINER__SECTION__FIELD`), then
`--set section.field=value`; each overrides the one before, as in the
[daemon's configuration](configuration.md). `streamfreq-trainer init` writes an example with every
field, `--show-config` prints what results.

The sections `source`, `kafka`, `files`, `value`, `text`, `tokenizer` and `redis` are the
[daemon's](configuration.md), and should say the same, so that the trainer sees the tokens that were
counted. `tokenizer.path` may be left out: it is then the model's own. `kafka.group_id` is
`streamfreq-trainer-NAME` unless given. Positions are kept in the run's resume state, not in the broker.

## The top of the file
"""  # noqa: E501


def configuration_markdown() -> str:
    """The reference of every section and field that is the trainer's own."""
    config = TrainerConfig.model_validate(
        {"kafka": {"topics": ["my-topic"]}, "model": {"path": "/models/my-model"}}
    )
    lines = [_HEAD, *top_markdown(config), *sections_markdown(TrainerConfig, but=_SHARED)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(configuration_markdown())
