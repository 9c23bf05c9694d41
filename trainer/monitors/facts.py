"""What one log interval amounts to: the values that every output shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from trainer.monitors.losses import BandLoss


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the monitors can't see for themselves: of stream, replay buffer and subscriber."""

    records: int = 0
    bad_records: int = 0
    lag_records: int | None = None
    queued_blocks: int = 0
    replay_blocks: int = 0
    snapshot_age_seconds: float | None = None
    snapshot_away: bool = False
    snapshot_stale: bool = False
    refused: int = 0
    strength: float = 1.0


@dataclass(frozen=True, slots=True)
class Risen:
    """A token that comes more often than it used to, with its weight."""

    token_id: int
    text: str
    weight: float
    rise: float
    count: float


@dataclass(frozen=True, slots=True)
class Interval:
    """One log interval. Losses are means in nats; the name of each field is that in the history.

    plain, weighted: of the training steps, as they were minimised and without weights.
    prequential: of new tokens before they were learned, overall and by band; `bands`: of all
    tokens of the steps. effective_sample_size: of the weights, 1 when all are alike.
    seconds: what the time went to. waiting: the share of it spent waiting for data.
    """

    step: int
    created_at_ms: int
    records: int
    tokens: int
    plain: float | None
    weighted: float | None
    prequential: float | None
    prequential_bands: Mapping[str, BandLoss]
    bands: Mapping[str, BandLoss]
    effective_sample_size: float | None
    gradient_norm: float | None
    learning_rate: float
    skipped_steps: int
    tokens_per_second: float
    waiting: float
    seconds: Mapping[str, float]
    version: int
    snapshot_age_seconds: float | None
    snapshot_away: bool
    snapshot_stale: bool
    refused: int
    strength: float
    lag_records: int | None
    bad_records: int
    replay_blocks: int
    rising: Sequence[Risen] = field(default_factory=tuple)

    def json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)
