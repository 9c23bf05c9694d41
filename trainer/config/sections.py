"""The trainer's configuration, one frozen section per part; docstrings are the help texts.

Where records come from and how they become text is configured by the daemon's own sections.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from streamfreq.config import (
    FilesConfig,
    KafkaConfig,
    RedisConfig,
    SourceConfig,
    TextConfig,
    TokenizerConfig,
    ValueConfig,
    WeightsConfig,
)
from streamfreq.config.sections import Duration, Name, Section

DEFAULT_GROUP = "streamfreq-trainer-"


class ModelConfig(Section):
    """Which model is trained, and how its numbers are held."""

    path: str = ""
    """A transformers folder or hub name of a causal language model. Give either this or `new`."""
    new: dict[str, Any] = {}
    """A new model from a configuration, like {model_type = "llama", hidden_size = 96, ...}."""
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    """Type of the parameters; auto: as stored."""
    device: Literal["auto", "cpu"] = "auto"
    """auto: CUDA when there is one."""
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = "auto"
    """Attention implementation; auto: the model's default."""
    gradient_checkpointing: bool = False
    """Trade time for memory: activations are computed again in the backward pass."""
    compile: bool = False
    """torch.compile."""
    trust_remote_code: bool = False
    """Let a model from the hub bring its own code."""

    @model_validator(mode="after")
    def _one_origin(self) -> ModelConfig:
        if self.path and self.new:
            raise ValueError("model.path or model.new: give only one of them")
        if self.new and not isinstance(self.new.get("model_type"), str):
            raise ValueError('model.new needs model_type, like "llama" or "gpt2"')
        return self


class DataConfig(Section):
    """How the stream becomes blocks of tokens."""

    block_size: int = Field(default=512, ge=8, le=1_048_576)
    """Tokens in a block (one row of a batch)."""
    packing: bool = True
    """Several documents in a block, each seeing only itself; false: one document a row, padded."""
    document_start: Literal["auto", "bos", "none"] = "auto"
    """A token in front of each document; auto: bos when the model's tokenizer has one."""
    document_end: Literal["auto", "eos", "none"] = "auto"
    """A token behind each document; auto: eos when the model's tokenizer has one."""
    max_wait_seconds: Duration = 5.0
    """A block that is not full after so long is padded and used."""
    queue_blocks: int = Field(default=256, ge=1)
    """So many blocks are read ahead; then reading pauses."""


class StepConfig(Section):
    """One optimizer step: sizes, precision, clipping, guards."""

    rows: int = Field(default=8, ge=1)
    """Blocks in one forward pass of one process."""
    accumulation: int = Field(default=1, ge=1)
    """Forward passes of one process before the optimizer steps."""
    precision: Literal["no", "bf16", "fp16"] = "no"
    """Autocast; fp16 scales the loss. Token weights stay float32."""
    max_grad_norm: float = Field(default=1.0, ge=0)
    """Gradients are clipped to this norm; 0: they are not."""
    max_bad_steps: int = Field(default=20, ge=1)
    """So many steps in a row with NaN or infinity are skipped; then training stops."""


class OptimizerConfig(Section):
    """AdamW and its learning rate."""

    learning_rate: float = Field(default=3e-4, gt=0)
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Decay rates of AdamW's moments."""
    eps: float = Field(default=1e-8, gt=0)
    """Added to the denominator."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Of matrices; vectors (norms, biases) have none."""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """After the warm-up; cosine and linear reach 0 at max_steps."""
    warmup_steps: int = Field(default=0, ge=0)
    """The rate rises from 0 for so many steps."""


class LossConfig(Section):
    """What is minimised."""

    kind: Literal["weighted", "plain", "focal", "logit_adjustment"] = "weighted"
    """weighted: cross entropy times token weights. logit_adjustment: a bias for the logits."""
    path: Literal["auto", "fused", "plain"] = "auto"
    """fused never holds all logits; auto: fused where it is supported, which the log tells."""
    focal_gamma: float = Field(default=2.0, ge=0)
    """focal: cross entropy times (1 - p)^gamma, times the token weights."""
    tau: float = Field(default=1.0, ge=0)
    """logit_adjustment: the bias is tau * log p of the longest horizon."""


class TokenWeightsConfig(WeightsConfig):
    """Token weights from the snapshots' counts: the daemon's recipe fields, and an own list."""

    published: str = ""
    """Use this weights tensor of the snapshot (like default), and not the recipe below."""
    terms_file: str = ""
    """A file with a word or phrase a line; the tokens of each are lifted by terms_boost."""
    terms_boost: float = Field(default=1.0, ge=0)
    """Weight times 1 + this for the tokens of the terms, after the cap."""
    terms_max_share: float = Field(default=1e-3, gt=0, le=1)
    """A token with a larger share of the stream is too common to stand for a term."""


class SubscriberConfig(Section):
    """How snapshots are followed."""

    job: Name = "default"
    """The daemon's job."""
    pull_interval_seconds: Duration = 10.0
    """The store is asked so often; its hint comes earlier."""
    max_age_seconds: Duration = math.inf
    """A snapshot that was published longer ago is stale."""
    on_stale: Literal["keep", "neutral", "stop"] = "keep"
    """keep: go on with it. neutral: all weights 1 until a fresh one comes. stop: end."""
    wait_seconds: Annotated[float, Field(ge=0)] = 0.0
    """Wait so long for the first snapshot; then begin with all weights 1."""


class ReplayConfig(Section):
    """Blocks that are seen again, drawn by the frequency of their tokens."""

    capacity: int = Field(default=4096, ge=0)
    """Blocks kept; 0: no replay."""
    share: float = Field(default=0.25, ge=0, lt=1)
    """So much of each step is replayed, the rest is new."""
    eviction: Literal["oldest", "reservoir"] = "oldest"
    """oldest: a window of the latest blocks. reservoir: a uniform sample of all."""
    alpha: float = Field(default=0.7, ge=0, le=2)
    """Draw weight of a block: the mean of p^-alpha over its tokens; 0: uniform."""
    horizon: str = "longest"
    """Whose p: shortest, longest, or a half-life as configured."""
    importance: float = Field(default=0.0, ge=0, le=1)
    """1: rows are weighted so that replay is an unbiased sample of the buffer again; 0: not."""
    when_waiting: Literal["wait", "replay"] = "wait"
    """replay: train on kept blocks alone while the stream has nothing new."""


class FreezingConfig(Section):
    """What trains, and how fast."""

    embeddings: bool = False
    """Freeze the input embeddings (with tied ones, the head too)."""
    first_layers: int = Field(default=0, ge=0)
    """Freeze so many of the first layers."""
    only_last_layers: int = Field(default=0, ge=0)
    """Train so many of the last layers, the final norm and the head; freeze all else."""
    unfreeze_every_steps: int = Field(default=0, ge=0)
    """Let one more frozen layer train after so many steps, from the last to the first; 0: never."""
    layer_decay: float = Field(default=1.0, gt=0, le=1)
    """Learning rate of each layer times this, per layer below the last."""
    embedding_gradient_scale: float = Field(default=1.0, ge=0)
    """Gradients of the input embeddings times this."""


class LoraConfig(Section):
    """Low-rank adapters (peft) in place of the full parameters."""

    rank: int = Field(default=0, ge=0)
    """0: no adapters."""
    alpha: float = Field(default=16.0, gt=0)
    """The adapters' scale is alpha / rank."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout in front of the adapters."""
    target_modules: list[str] = []
    """Names of the modules to adapt; empty: every linear layer but the head."""
    save_modules: list[str] = []
    """Modules trained whole beside the adapters, like lm_head or embed_tokens."""

    @field_validator("target_modules", "save_modules", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return [part.strip() for part in value.split(",") if part.strip()]
        return value


class MonitorsConfig(Section):
    """What is measured, and where it is shown."""

    log_interval_steps: int = Field(default=10, ge=1)
    """A progress line and a point on each curve so often."""
    head_mass: float = Field(default=0.5, gt=0, lt=1)
    """The most frequent tokens that make up so much of the stream are the band head."""
    tail_mass: float = Field(default=0.1, gt=0, lt=1)
    """The rarest seen tokens that make up so much of it are the band tail."""
    emerging_ratio: float = Field(default=3.0, gt=1)
    """Tokens that come so many times more often than in the long run are emerging."""
    prequential: Literal["auto", "forward", "separate", "off"] = "auto"
    """Score new blocks before learning; auto: by the training forward if it has no dropout."""
    guard_ratio: float = Field(default=1.5, gt=1)
    """The tail's loss grew so much more than the rest's since its best: lower the strength."""
    guard_strength: float = Field(default=0.5, gt=0, le=1)
    """Each time by this factor; 1: only say so."""
    guard_patience: int = Field(default=5, ge=1)
    """Only after so many intervals in a row."""
    tensorboard: bool = True
    """Write TensorBoard curves to OUTPUT/tensorboard."""
    http_host: str = "127.0.0.1"
    """Address of /metrics for Prometheus."""
    http_port: int = Field(default=-1, ge=-1, le=65535)
    """Its port; 0: any free one, which the log tells; -1: none."""
    log_format: Literal["text", "json"] = "text"
    """text for people, json for programs."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """How much the log says."""


class SaveConfig(Section):
    """Resume states and exported models."""

    interval_steps: int = Field(default=200, ge=1)
    """A resume state so often (save_interval); after a crash at most so much is done again."""
    keep: int = Field(default=2, ge=1)
    """The last N resume states stay."""
    export_interval_steps: int = Field(default=0, ge=0)
    """A model (save_pretrained) so often; 0: only at the end."""
    keep_exports: int = Field(default=3, ge=1)
    """The last N exported models stay."""


class ModelTokenizerConfig(TokenizerConfig):
    """The model's tokenizer, which has to be the daemon's too."""

    path: str = ""
    """A tokenizer.json, folder, hub name, .model or .tiktoken file; empty: the model's own."""


class TrainerConfig(Section):
    """The whole configuration of a trainer."""

    name: Name = "default"
    """Name of this training run."""
    output: str = "runs/default"
    """Folder for resume states, exports, curves and metrics."""
    seed: int = Field(default=0, ge=0)
    """Seed of initialisation, dropout and replay."""
    max_steps: int = Field(default=0, ge=0)
    """End after so many optimizer steps; 0: never."""
    source: SourceConfig = SourceConfig()
    kafka: KafkaConfig = KafkaConfig()
    files: FilesConfig = FilesConfig()
    value: ValueConfig = ValueConfig()
    text: TextConfig = TextConfig()
    tokenizer: ModelTokenizerConfig = ModelTokenizerConfig()
    redis: RedisConfig = RedisConfig()
    subscriber: SubscriberConfig = SubscriberConfig()
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    step: StepConfig = StepConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    loss: LossConfig = LossConfig()
    weights: TokenWeightsConfig = TokenWeightsConfig()
    replay: ReplayConfig = ReplayConfig()
    freezing: FreezingConfig = FreezingConfig()
    lora: LoraConfig = LoraConfig()
    monitors: MonitorsConfig = MonitorsConfig()
    save: SaveConfig = SaveConfig()

    @model_validator(mode="after")
    def _is_complete(self) -> TrainerConfig:
        kafka = self.kafka
        if self.source.kind == "kafka" and bool(kafka.topics) == bool(kafka.topic_pattern):
            raise ValueError("kafka.topics or kafka.topic_pattern: give exactly one of them")
        if self.source.kind == "kafka" and kafka.start == "lookback":
            raise ValueError("kafka.start: lookback is the daemon's; use earliest or latest")
        if self.source.kind == "files" and not self.files.paths:
            raise ValueError("files.paths: name at least one file")
        if not (self.model.path or self.model.new):
            raise ValueError("model.path or model.new: name the model to train")
        if "words" in (self.tokenizer.path, self.tokenizer.kind):
            raise ValueError("tokenizer: hashed words have no model; name the model's tokenizer")
        if not (self.tokenizer.path or self.model.path):
            raise ValueError("tokenizer.path: a new model needs a tokenizer")
        if self.optimizer.schedule != "constant" and not self.max_steps:
            raise ValueError(f"optimizer.schedule = {self.optimizer.schedule} needs max_steps")
        return self

    @property
    def group_id(self) -> str:
        """The consumer group, with its default filled in: this trainer's own."""
        return self.kafka.group_id or f"{DEFAULT_GROUP}{self.name}"

    @property
    def tokenizer_config(self) -> TokenizerConfig:
        """The tokenizer section, with the model's own tokenizer where none is named."""
        path = self.tokenizer.path or self.model.path
        return self.tokenizer.model_copy(update={"path": path})
