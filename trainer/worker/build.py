"""The one place where a worker is put together from a configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor, nn

from streamfreq.clock import Clock, SystemClock
from streamfreq.config import SnapshotsConfig
from streamfreq.errors import ConfigError
from streamfreq.snapshots import open_snapshots
from streamfreq.sources import open_dead_letters, open_source
from streamfreq.sources.base import Source, StartAt
from streamfreq.tokenization import Tokenizer, load_tokenizer
from trainer.batches import BlockStream, Mixer, Packer, Specials
from trainer.batches.documents import Documents
from trainer.config import TrainerConfig
from trainer.freezing import (
    GradualUnfreezing,
    Plan,
    parameter_groups,
    prepare,
    scale_embedding_gradient,
    trainable_table,
)
from trainer.losses import LanguageModelLoss, choose_path
from trainer.losses.parts import body_of
from trainer.models import (
    DocumentTokens,
    compile_body,
    document_tokens,
    has_dropout,
    isolates_documents,
    load_model,
)
from trainer.monitors import Monitors
from trainer.replay import ReplayBuffer
from trainer.step import Settings, TrainStep, build_optimizer, build_schedule
from trainer.subscriber import DistributedRanks, Ranks, SingleRank, Subscriber
from trainer.token_weights import Puller, Recipe, Terms, TokenTables, check_recipe
from trainer.worker.rows import RowSharing, StepShape
from trainer.worker.saving import Identity, Saver
from trainer.worker.scoring import Scorer
from trainer.worker.worker import Parts, Reading, Worker

log = logging.getLogger("trainer.worker")


@dataclass(frozen=True, slots=True)
class Trainee:
    """The model as it will be trained, on its device, and what was found out about it."""

    tokenizer: Tokenizer
    plan: Plan
    module: LanguageModelLoss
    specials: DocumentTokens
    vocab_size: int
    dropout: bool
    table: str

    @property
    def special_ids(self) -> set[int]:
        """What stands between documents and is in no text."""
        ids = (self.specials.start_id, self.specials.end_id)
        return {id_ for id_ in ids if id_ is not None}


def make_trainee(config: TrainerConfig, device: torch.device) -> Trainee:
    """Load or make the model, freeze, add adapters, choose the loss path, compile.

    Logs the table of what trains. Raises ConfigError for what can't be.
    """
    check_recipe(config.weights)
    tokenizer = load_tokenizer(config.tokenizer_config)
    model: Any = load_model(config.model, config.seed, tokenizer.vocab_size)
    specials = document_tokens(
        model.config,
        config.tokenizer_config.path,
        config.data,
        is_new=bool(config.model.new),
    )
    limit = getattr(model.config, "max_position_embeddings", None)
    if isinstance(limit, int) and config.data.block_size > limit:
        raise ConfigError(
            f"data.block_size = {config.data.block_size}: the model has {limit} positions"
        )
    model.to(device)
    if not isolates_documents(model) and config.data.packing:
        raise ConfigError(
            f"data.packing: {type(model).__name__} does not keep the documents of a row apart; "
            "set data.packing = false"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)  # adapters begin at random
        plan = prepare(model, config.freezing, config.lora)
    scale_embedding_gradient(model, config.freezing.embedding_gradient_scale)
    table = trainable_table(plan, config.freezing)
    for line in table.splitlines():
        log.info("%s", line)
    plan.model.to(device)
    module = LanguageModelLoss(plan.model, choose_path(plan.model, config.loss, device))
    vocab_size = int(model.get_input_embeddings().weight.shape[0])
    dropout = has_dropout(plan.model)
    if config.model.compile:
        compile_body(body_of(plan.model))
    return Trainee(tokenizer, plan, module, specials, vocab_size, dropout, table)


def build_worker(
    config: TrainerConfig,
    *,
    until_caught_up: bool = False,
    source: Source | None = None,
    clock: Clock | None = None,
) -> Worker:
    """A worker ready to `run`; `source` replaces the configured one.

    Raises ConfigError for what can be known to be wrong before the services are asked.
    """
    clock = clock or SystemClock()
    accelerator = Accelerator(
        mixed_precision=config.step.precision,
        cpu=config.model.device == "cpu",
        gradient_accumulation_steps=1,
    )
    ranks: Ranks = (
        SingleRank() if accelerator.num_processes == 1 else DistributedRanks(accelerator.device)
    )
    if not ranks.is_main:
        logging.getLogger("trainer").setLevel(logging.WARNING)  # the main process says it all
    trainee = make_trainee(config, accelerator.device)
    step, module = _step(config, trainee, accelerator)
    # Dropout is to differ between processes, and to be the same in each run.
    set_seed(config.seed, device_specific=True)
    subscriber = _subscriber(config, trainee, accelerator.device, ranks, clock)
    monitors = _monitors(config, trainee, accelerator, clock)
    shape = StepShape(
        config.step.rows, config.step.accumulation, ranks.count, config.data.block_size
    )
    reading = None
    if ranks.is_main:
        until_end = until_caught_up or config.source.kind == "files"
        stream = _stream(config, trainee, source or open_source(config, clock), clock, until_end)
        reading = _reading(config, stream, shape.step_rows, clock)
    stateful: dict[str, Any] = {"step": step, "subscriber": subscriber, "monitors": monitors}
    if reading is not None:
        stateful["mixer"] = reading.mixer
    settings = Settings(step.optimizer, step.lr_scheduler)
    saver = Saver(config, accelerator, _identity(config, trainee), stateful, settings.apply, clock)
    parts = Parts(
        module=module,
        step=step,
        subscriber=subscriber,
        sharing=RowSharing(ranks, shape, accelerator.device),
        reading=reading,
        scorer=_scorer(config, trainee, module),
        monitors=monitors,
        saver=saver,
    )
    monitors.scored_separately = parts.scorer is not None
    return Worker(parts, config)


def _step(
    config: TrainerConfig, trainee: Trainee, accelerator: Accelerator
) -> tuple[TrainStep, nn.Module]:
    groups = parameter_groups(trainee.plan, config.optimizer, config.freezing)
    optimizer: Any = build_optimizer(groups, config.optimizer)
    module, optimizer = accelerator.prepare(trainee.module, optimizer)
    schedule = build_schedule(optimizer, config.optimizer, config.max_steps)
    accelerator.register_for_checkpointing(schedule)
    step = TrainStep(module, optimizer, schedule, accelerator, config.loss, config.step)
    unfreezing = GradualUnfreezing(trainee.plan)
    step.before_update = lambda: unfreezing.before_update(step.steps)
    return step, module


def _subscriber(
    config: TrainerConfig,
    trainee: Trainee,
    device: torch.device,
    ranks: Ranks,
    clock: Clock,
) -> Subscriber:
    weights = config.weights
    puller = None
    if ranks.is_main:
        terms = None
        if weights.terms_file:
            terms = Terms.load(
                weights.terms_file, trainee.tokenizer, weights.terms_boost, weights.terms_max_share
            )
        recipe = Recipe(weights, config.replay.horizon, trainee.vocab_size, terms)
        store = open_snapshots(config.redis, SnapshotsConfig(), config.subscriber.job)
        puller = Puller(
            store,
            trainee.tokenizer.fingerprint,
            recipe,
            config.subscriber.pull_interval_seconds,
            device,
            clock,
        )
    neutral = TokenTables.neutral(trainee.vocab_size, device)
    return Subscriber(puller, config.subscriber, neutral, ranks, clock)


def _stream(
    config: TrainerConfig, trainee: Trainee, source: Source, clock: Clock, until_end: bool
) -> BlockStream:
    specials = trainee.specials
    packer = Packer(
        config.data.block_size,
        Specials(specials.start_id, specials.end_id, specials.pad_id),
        packing=config.data.packing,
    )
    documents = Documents(config.value, config.text, trainee.tokenizer, open_dead_letters(config))
    start = "earliest" if config.source.kind == "files" else config.kafka.start
    return BlockStream(
        source, documents, packer, config.data, StartAt(policy=start), clock, until_end=until_end
    )


def _reading(config: TrainerConfig, stream: BlockStream, rows: int, clock: Clock) -> Reading:
    replay = ReplayBuffer(config.replay, config.data.block_size, config.seed)
    wait_seconds = config.data.max_wait_seconds
    mixer = Mixer(stream, replay, config.replay, rows, wait_seconds, clock)
    return Reading(stream, mixer, replay)


def _monitors(
    config: TrainerConfig, trainee: Trainee, accelerator: Accelerator, clock: Clock
) -> Monitors:
    return Monitors(
        config.monitors,
        Path(config.output),
        clock,
        is_main=accelerator.is_main_process,
        reduce=_reduce(accelerator),
        token_text=trainee.tokenizer.token_text,
        special_ids=trainee.special_ids,
    )


def _scorer(config: TrainerConfig, trainee: Trainee, module: nn.Module) -> Scorer | None:
    wanted = config.monitors.prequential
    if wanted == "separate" or (wanted == "auto" and trainee.dropout):
        log.info("new rows are scored by a forward pass of their own")
        return Scorer(module)
    return None


def _identity(config: TrainerConfig, trainee: Trainee) -> Identity:
    return Identity(
        {
            "tokenizer": trainee.tokenizer.fingerprint,
            "data.block_size": config.data.block_size,
            "data.packing": config.data.packing,
            "model vocabulary": trainee.vocab_size,
            "parameters": sum(item.numel() for item in trainee.plan.model.parameters()),
            "lora.rank": config.lora.rank,
        }
    )


def _reduce(accelerator: Accelerator) -> Callable[[Tensor], Tensor]:
    def reduce(tensor: Tensor) -> Tensor:
        if accelerator.num_processes == 1:
            return tensor
        total: Tensor = accelerator.reduce(tensor, "sum")
        return total

    return reduce
