"""The configuration, one frozen section per part; the docstring under a field is its help text.

Each part receives only its own section. Loading is in `load.py`, the example file in `example.py`.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from streamfreq.config.durations import parse_duration

Duration = Annotated[float, BeforeValidator(parse_duration)]
"""Seconds; written like 30s, 5m, 1h, 7d or inf."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
Mask = Literal["email", "phone", "url", "ip", "card", "cn_id", "iban"]
BadPolicy = Literal["skip", "dead-letter", "stop"]


def _comma_separated(value: object) -> object:
    """Lets the environment and --set give a list as a,b,c."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


class Section(BaseModel):
    """A frozen part of the configuration; an unknown field is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True
    )


class SourceConfig(Section):
    """Where records come from."""

    kind: Literal["kafka", "files"] = "kafka"
    """kafka: topics of a broker, section [kafka]. files: a replay of files, section [files]."""


class KafkaConfig(Section):
    """The broker, the topics, and how reading begins."""

    bootstrap_servers: list[str] = ["localhost:9092"]
    """Brokers to ask first, HOST:PORT each."""
    topics: list[str] = []
    """Topics to read. Give either these or topic_pattern."""
    topic_pattern: str = ""
    """A regular expression; every topic that matches is read, new ones too."""
    group_id: str = ""
    """Consumer group; empty: streamfreq-JOB. Workers of one job share it."""
    start: Literal["earliest", "latest", "lookback"] = "earliest"
    """Where a partition without a checkpoint begins; one that its topic got later: earliest."""
    lookback_half_lives: float = Field(default=10.0, gt=0)
    """lookback: begin, by time, so many of the longest finite half-lives ago."""
    expired_offset: Literal["earliest", "latest", "fail"] = "earliest"
    """What to do when the broker no longer has the next offset; the gap goes into the snapshot."""
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """read_committed: records of aborted transactions are not counted."""
    max_poll_records: int = Field(default=10_000, ge=1)
    """At most so many records per poll."""
    session_timeout_ms: int = Field(default=45_000, ge=1_000)
    """A worker silent for so long loses its partitions."""
    max_poll_interval_ms: int = Field(default=300_000, ge=1_000)
    """A worker that does not poll for so long loses its partitions."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """How to talk to the brokers."""
    sasl_mechanism: str = ""
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, GSSAPI or OAUTHBEARER, with a SASL protocol."""
    sasl_username: str = ""
    """User for PLAIN and SCRAM."""
    sasl_password: SecretStr = SecretStr("")
    """Password for PLAIN and SCRAM; better by STREAMFREQ__KAFKA__SASL_PASSWORD."""
    ssl_cafile: str = ""
    """File with the certificate authorities (PEM); empty: the system's."""
    ssl_certfile: str = ""
    """Client certificate (PEM)."""
    ssl_keyfile: str = ""
    """Key of the client certificate (PEM)."""
    ssl_password: SecretStr = SecretStr("")
    """Password of the key."""
    options: dict[str, Any] = {}
    """Further options, passed to the Kafka client as they are (its own names)."""

    @field_validator("bootstrap_servers", "topics", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return _comma_separated(value)


class FilesConfig(Section):
    """Files replayed as a stream; each file is one partition, each line one record."""

    paths: list[str] = []
    """Text or JSON lines; .gz and .zst too, .parquet with the extra `parquet`."""
    records_per_second: float = Field(default=0.0, ge=0)
    """Replay speed over all files; 0: as fast as possible."""

    @field_validator("paths", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return _comma_separated(value)


class ValueConfig(Section):
    """How a record's bytes become text and event time."""

    format: Literal["text", "json"] = "text"
    """text: the value is the text (UTF-8). json: an object with the text in a field."""
    text_field: str = "text"
    """JSON field with the text; dots go into nested objects (article.body)."""
    time_field: str = ""
    """JSON field with the event time; empty: the record's own timestamp."""
    time_unit: Literal["ms", "s", "iso"] = "ms"
    """Unit of time_field: ms or s since the epoch, or ISO 8601 text."""
    on_bad: BadPolicy = "skip"
    """For values that are not JSON, lack the text field, or are too large; always counted."""
    on_invalid_utf8: Literal["replace", "skip", "dead-letter", "stop"] = "replace"
    """replace: U+FFFD stands for the bytes that are not UTF-8, and the record is counted."""
    max_record_bytes: int = Field(default=1_048_576, ge=1)
    """A larger value is bad (on_bad)."""
    dead_letter_topic: str = ""
    """Topic for `dead-letter` when the source is Kafka."""
    dead_letter_file: str = ""
    """File (JSON lines, appended) for `dead-letter`; used when no topic is set."""

    @model_validator(mode="after")
    def _dead_letters_have_a_place(self) -> ValueConfig:
        wanted = "dead-letter" in (self.on_bad, self.on_invalid_utf8)
        if wanted and not (self.dead_letter_topic or self.dead_letter_file):
            raise ValueError("dead-letter needs dead_letter_topic or dead_letter_file")
        return self


class TextConfig(Section):
    """Cleaning and masking, before the tokenizer."""

    normalize: Literal["NFC", "NFKC", "none"] = "NFC"
    """Unicode normalization form."""
    unescape_html: bool = False
    """Turn &amp; and the like into characters."""
    strip_control: bool = True
    """Remove control characters (tab, newline and carriage return count as whitespace)."""
    collapse_whitespace: bool = True
    """Make each run of whitespace one space, and none at the ends."""
    lowercase: bool = False
    """Lower case."""
    mask: list[Mask] = []
    """Personal data to replace: email, phone, url, ip, card, cn_id, iban; or all."""
    phone_regions: list[str] = ["US", "GB", "CN", "DE"]
    """Regions (ISO 3166) whose national phone numbers are recognised beside international ones."""

    @field_validator("mask", mode="before")
    @classmethod
    def _all(cls, value: object) -> object:
        value = _comma_separated(value)
        if value == ["all"]:
            return ["email", "phone", "url", "ip", "card", "cn_id", "iban"]
        return value

    @field_validator("phone_regions", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return _comma_separated(value)


class TokenizerConfig(Section):
    """Which tokenizer, and which engine does its work."""

    path: str = "words"
    """words, or a tokenizer.json, folder, hub name, SentencePiece .model or .tiktoken file."""
    kind: Literal["auto", "huggingface", "sentencepiece", "tiktoken", "words"] = "auto"
    """auto: from the path."""
    engine: Literal["auto", "gigatoken", "reference"] = "auto"
    """auto: gigatoken where it gives the same ids, else the reference library of the format."""
    tiktoken_encoding: str = ""
    """Split rule (cl100k_base, o200k_base, ...) of a .tiktoken file whose name does not tell."""
    max_cache_mb: int = Field(default=256, ge=16)
    """The fast engine is rebuilt when its caches may have grown beyond this many MB."""
    threads: int = Field(default=0, ge=0, le=256)
    """Threads of the engine; 0: as many as cores."""
    words_buckets_log2: int = Field(default=17, ge=8, le=24)
    """words: 2^k buckets in each row."""
    words_rows: int = Field(default=1, ge=1, le=8)
    """words: 1 row is the hashing trick; d rows are a count-min sketch."""
    words_seed: int = Field(default=0, ge=0)
    """words: seed of the hash; another seed is another vocabulary."""
    words_segmenter: Literal["bigrams", "jieba"] = "bigrams"
    """words: Chinese without spaces as single characters and bigrams, or by jieba (an extra)."""
    words_labels: int = Field(default=2_000, ge=0)
    """words: so many of the heaviest words keep their names, for people."""


class DecayConfig(Section):
    """The form f_new = alpha * f_old + (1 - alpha) * df per window, as a half-life."""

    alpha: float = Field(gt=0, lt=1)
    """What is left of a count after one window."""
    window_seconds: float = Field(gt=0)
    """Length of the window."""

    @property
    def half_life_seconds(self) -> float:
        """window * ln 2 / -ln alpha."""
        return self.window_seconds * math.log(2) / -math.log(self.alpha)


class CountingConfig(Section):
    """Decayed counts: half-lives, device, event time."""

    half_lives: list[Duration] = [300.0, 3600.0, 86400.0]
    """One row of counts each, like 5m, 1h, 24h; inf gives plain counts."""
    decay: DecayConfig | None = None
    """{alpha, window_seconds}: one more horizon in the form of a moving average."""
    documents: bool = True
    """Also count how many records hold each token (for IDF)."""
    device: str = "auto"
    """auto (CUDA when there is one), cpu, cuda, cuda:1."""
    max_future_skew_seconds: Duration = 3600.0
    """A timestamp further ahead of the clock is set to the clock plus this."""
    max_lateness_seconds: Duration = math.inf
    """A record further behind its partition's latest event time is late."""
    on_late: Literal["count", "drop"] = "count"
    """What happens to late records; counted in the metrics either way."""

    @field_validator("half_lives", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return _comma_separated(value)

    @model_validator(mode="after")
    def _at_least_one_horizon(self) -> CountingConfig:
        if not self.half_lives and self.decay is None:
            raise ValueError("half_lives needs at least one duration")
        for seconds in self.horizons_seconds:
            if math.isfinite(seconds) and not 1e-9 <= seconds <= 9.2e9:
                raise ValueError("half_lives are from 1 nanosecond to 290 years, or inf")
        if len(set(self.horizons_seconds)) != len(self.horizons_seconds):
            raise ValueError("half_lives must differ from each other")
        return self

    @property
    def horizons_seconds(self) -> tuple[float, ...]:
        """All half-lives in seconds, in row order; the `decay` form comes last."""
        decay = () if self.decay is None else (self.decay.half_life_seconds,)
        return (*self.half_lives, *decay)


class RedisConfig(Section):
    """The store of checkpoints and snapshots: any server that speaks the Redis protocol."""

    url: str = "redis://localhost:6379/0"
    """redis://, rediss:// (TLS), unix://; user and database as usual; memory:// for tests."""
    password: SecretStr = SecretStr("")
    """Password; better by STREAMFREQ__REDIS__PASSWORD than in the URL."""
    username: str = ""
    """User of the server's access control list."""
    cluster: bool = False
    """The URL names a node of a Redis Cluster."""
    prefix: Name = "streamfreq"
    """First part of every key."""
    timeout_ms: int = Field(default=5_000, ge=100)
    """Longest wait for one answer."""
    ssl_cafile: str = ""
    """File with the certificate authorities (PEM) for rediss://."""
    ssl_certfile: str = ""
    """Client certificate (PEM)."""
    ssl_keyfile: str = ""
    """Key of the client certificate (PEM)."""


class ScheduleConfig(Section):
    """When to commit and publish, and how long an orderly end may take."""

    commit_interval_seconds: Duration = 10.0
    """A checkpoint of every changed partition is written so often."""
    publish_interval_seconds: Duration = 30.0
    """A snapshot is published so often (by one daemon of the job)."""
    publish_cron: str = ""
    """Five cron fields in UTC, instead of publish_interval_seconds."""
    shutdown_timeout_seconds: Annotated[Duration, Field(le=86_400)] = 30.0
    """SIGTERM: commit and leave the group within this time, then end."""


class SnapshotsConfig(Section):
    """What is published and what is kept."""

    retain: int = Field(default=10, ge=1)
    """So many versions stay, pinned ones besides."""
    lease_seconds: Duration = 12.0
    """A publisher that is silent for so long is replaced; at most 0.4 of the publish interval."""
    as_of: Literal["watermark", "clock"] = "watermark"
    """Time the counts are decayed to: the latest event time counted, or the clock when later."""
    min_mass: float = Field(default=1e-6, ge=0)
    """Below so many decayed tokens in every horizon nothing is published; the last one is stale."""


class FactorConfig(Section):
    """One scheme with its parameters, a factor of a product."""

    scheme: Literal[
        "frequency",
        "log",
        "idf",
        "inverse_power",
        "rare_boost",
        "effective_number",
        "exponential",
        "chi_square",
        "subsampling",
        "logit_adjustment",
        "emergence",
    ]
    """The rule; docs/weights.md has the formula and the source of each."""
    horizon: str = "longest"
    """Whose counts: shortest, longest, or a half-life as configured (1h)."""
    against: str = "longest"
    """emergence: the long horizon that `horizon` is compared with."""
    params: dict[str, float] = {}
    """Parameters of the rule by their names (power, boost, beta, tau, ...)."""
    ids: list[int] = []
    """rare_boost: lift these token ids in place of the rarest ones."""


class WeightsConfig(Section):
    """One weights tensor of the snapshot: a product of factors, made safe."""

    product: list[FactorConfig] = [
        FactorConfig(scheme="inverse_power", horizon="longest", params={"power": 0.2}),
        FactorConfig(scheme="emergence", horizon="shortest", against="longest"),
    ]
    """The factors."""
    strength: float = Field(default=1.0, ge=0, le=1)
    """Blend with the neutral weight 1: 0 is all neutral, 1 the pure product."""
    floor: float = Field(default=0.1, gt=0, le=1)
    """Smallest weight, before the last scaling."""
    cap: float = Field(default=10.0, ge=1)
    """Largest weight, before the last scaling."""
    min_count: float = Field(default=1.0, ge=0)
    """A token with a smaller decayed count (longest horizon) gets the neutral weight."""
    smoothing: float = Field(default=1.0, ge=0)
    """Added to every count before it becomes a probability."""


class TelemetryConfig(Section):
    """Metrics, health, logs."""

    http_host: str = "127.0.0.1"
    """Address of /metrics, /healthz and /readyz; 0.0.0.0 for all."""
    http_port: int = Field(default=9108, ge=-1, le=65535)
    """Its port; 0: any free one, which the log tells; -1: none."""
    log_format: Literal["text", "json"] = "text"
    """text for people, json for programs."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """How much the log says."""


class Config(Section):
    """The whole configuration."""

    job: Name = "default"
    """Name of this stream of counts; checkpoints and snapshots are kept under it."""
    source: SourceConfig = SourceConfig()
    kafka: KafkaConfig = KafkaConfig()
    files: FilesConfig = FilesConfig()
    value: ValueConfig = ValueConfig()
    text: TextConfig = TextConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    counting: CountingConfig = CountingConfig()
    redis: RedisConfig = RedisConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    snapshots: SnapshotsConfig = SnapshotsConfig()
    weights: dict[Name, WeightsConfig] = {"default": WeightsConfig()}
    """Weights tensors by name."""
    telemetry: TelemetryConfig = TelemetryConfig()

    @model_validator(mode="after")
    def _source_is_complete(self) -> Config:
        if self.source.kind == "kafka" and bool(self.kafka.topics) == bool(
            self.kafka.topic_pattern
        ):
            raise ValueError("kafka.topics or kafka.topic_pattern: give exactly one of them")
        if self.source.kind == "files" and not self.files.paths:
            raise ValueError("files.paths: name at least one file")
        return self

    @property
    def group_id(self) -> str:
        """The consumer group, with its default filled in."""
        return self.kafka.group_id or f"streamfreq-{self.job}"
