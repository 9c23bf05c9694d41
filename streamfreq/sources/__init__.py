"""Where records come from and where bad ones go: the ports, and the adapter a configuration names.

Importing this is cheap; each adapter's library is loaded when it is opened.
"""

from __future__ import annotations

from typing import Protocol

from streamfreq.clock import Clock
from streamfreq.config import FilesConfig, KafkaConfig, SourceConfig, ValueConfig
from streamfreq.errors import ConfigError
from streamfreq.sources.base import AssignmentListener, DeadLetter, DeadLetters, Source, StartAt

__all__ = [
    "AssignmentListener",
    "DeadLetter",
    "DeadLetters",
    "Source",
    "SourceSettings",
    "StartAt",
    "open_dead_letters",
    "open_source",
    "value_columns",
]


class SourceSettings(Protocol):
    """The sections of a configuration that say where records come from."""

    @property
    def source(self) -> SourceConfig: ...  # noqa: D102
    @property
    def kafka(self) -> KafkaConfig: ...  # noqa: D102
    @property
    def files(self) -> FilesConfig: ...  # noqa: D102
    @property
    def value(self) -> ValueConfig: ...  # noqa: D102
    @property
    def group_id(self) -> str: ...  # noqa: D102


def open_source(config: SourceSettings, clock: Clock) -> Source:
    """The source that `source.kind` names, ready for its `open`; raises ConfigError."""
    if config.source.kind == "files":
        from streamfreq.sources.files import FilesSource

        columns = value_columns(config.value) if config.value.format == "json" else ()
        return FilesSource(config.files, clock, columns)
    from streamfreq.sources.kafka import KafkaSource

    return KafkaSource(config.kafka, config.group_id, clock)


def open_dead_letters(config: SourceSettings) -> DeadLetters | None:
    """The place for dead letters: the topic when one is named (source Kafka), else the file.

    None when the configuration names neither; ConfigError for a topic without a broker.
    """
    value = config.value
    if value.dead_letter_topic and config.source.kind == "kafka":
        from streamfreq.sources.kafka import KafkaDeadLetters

        return KafkaDeadLetters(config.kafka, value.dead_letter_topic)
    if value.dead_letter_topic and not value.dead_letter_file:
        raise ConfigError(
            "value.dead_letter_topic needs source.kind = kafka; with files set "
            "value.dead_letter_file"
        )
    if value.dead_letter_file:
        from streamfreq.sources.dead_letters import FileDeadLetters

        return FileDeadLetters(value.dead_letter_file)
    return None


def value_columns(value: ValueConfig) -> tuple[str, ...]:
    """The columns of a .parquet file that hold the text and the time."""
    fields = (value.text_field, value.time_field)
    return tuple(dict.fromkeys(field.partition(".")[0] for field in fields if field))
