"""How the trainer's commands get their configuration and their log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from streamfreq.commands import ConfigArguments

if TYPE_CHECKING:
    from trainer.config import TrainerConfig

_CHATTY = ("accelerate", "transformers", "torch", "matplotlib")
"""Libraries whose own lines, about every file that is saved, are of no use to those who train."""

ENV_PREFIX = "STREAMFREQ_TRAINER__"


def load(arguments: ConfigArguments) -> TrainerConfig:
    """The configuration of the file, the environment and --set; raises ConfigError."""
    from trainer.config import TrainerConfig

    return arguments.load_as(TrainerConfig, prefix=ENV_PREFIX, program="streamfreq-trainer")


def begin_log(config: TrainerConfig) -> None:
    """The log on stderr, without secrets."""
    from streamfreq.config.secrets import secret_texts
    from streamfreq.logs import add_secret, configure_logging

    configure_logging(config.monitors.log_format, config.monitors.log_level)
    quiet_libraries()
    for text in secret_texts(config):
        add_secret(text)


def quiet_libraries() -> None:
    """Leave out what libraries tell about their own work."""
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.ERROR)
