"""The trainer's configuration: frozen sections, loaded as the daemon's are."""

from trainer.config.sections import (
    DataConfig,
    FreezingConfig,
    LoraConfig,
    LossConfig,
    ModelConfig,
    MonitorsConfig,
    OptimizerConfig,
    ReplayConfig,
    SaveConfig,
    StepConfig,
    SubscriberConfig,
    TokenWeightsConfig,
    TrainerConfig,
)

__all__ = [
    "DataConfig",
    "FreezingConfig",
    "LoraConfig",
    "LossConfig",
    "ModelConfig",
    "MonitorsConfig",
    "OptimizerConfig",
    "ReplayConfig",
    "SaveConfig",
    "StepConfig",
    "SubscriberConfig",
    "TokenWeightsConfig",
    "TrainerConfig",
]
