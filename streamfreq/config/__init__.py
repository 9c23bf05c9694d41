"""Configuration: one TOML file, the environment, `--set`; frozen sections named as the parts."""

from streamfreq.config.durations import format_duration, parse_duration
from streamfreq.config.sections import (
    Config,
    CountingConfig,
    DecayConfig,
    FactorConfig,
    FilesConfig,
    KafkaConfig,
    RedisConfig,
    ScheduleConfig,
    SnapshotsConfig,
    SourceConfig,
    TelemetryConfig,
    TextConfig,
    TokenizerConfig,
    ValueConfig,
    WeightsConfig,
)

__all__ = [
    "Config",
    "CountingConfig",
    "DecayConfig",
    "FactorConfig",
    "FilesConfig",
    "KafkaConfig",
    "RedisConfig",
    "ScheduleConfig",
    "SnapshotsConfig",
    "SourceConfig",
    "TelemetryConfig",
    "TextConfig",
    "TokenizerConfig",
    "ValueConfig",
    "WeightsConfig",
    "format_duration",
    "parse_duration",
]
