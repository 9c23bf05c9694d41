"""The one place where a worker is put together from a configuration."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor, nn

from streamfreq.clock import Clock, SystemClock
from streamfreq.errors import ConfigError
from streamfreq.snapshots import open_snapshots
from streamfreq.config import SnapshotsConfig
from streamfreq.sources import open_dead_letters, open_source
from streamfreq.sources.base import Source, StartAt
from streamfreq.tokenization import Tokenizer, load_tokenizer
from trainer.batches import BlockStream, Mixer, Packer, Specials
from trainer.batches.documents import Documents
from trainer.config import TrainerConfig
from trainer.freezing import GradualUnfreezing, parameter_groups, prepare, scale_embedding_gradient
from trainer.freezing import table as freezing_table
from trainer.losses import LanguageModelLoss, choose_path
from trainer.losses.parts import body_of
from trainer.models import (
    compile_model,
    document_tokens,
    has_dropout,
    isolates_documents,
    load_model,
)
from trainer.monitors import Monitors
from trainer.replay import ReplayBuffer
from trainer.step import TrainStep, build_optimizer, build_schedule
from trainer.subscriber import DistributedRanks, Ranks, SingleRank, Subscriber
from trainer.token_weights import Puller, Recipe, Terms
from trainer.worker.rows import RowSharing, StepShape
from trainer.worker.saving import Identity, Saver
from trainer.worker.scoring import Scorer
from trainer.worker.worker import Parts, Reading, Worker

log = logging.getLogger("trainer.worker")
