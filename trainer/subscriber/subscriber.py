"""Which token tables are in use: swapped at a step boundary, the same version on all processes."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from streamfreq.clock import Clock
from streamfreq.errors import DataRefused, StreamfreqError
from trainer.config import SubscriberConfig
from trainer.subscriber.ranks import Ranks
from trainer.token_weights import Puller, TokenTables

log = logging.getLogger("trainer.subscriber")

_LOOK_SECONDS = 0.2
"""While the first snapshot is waited for, so soon the end of the run is noticed."""


@dataclass(frozen=True, slots=True)
class SubscriberStatus:
    """What is in use. age_seconds: since it was published, None without a snapshot."""

    version: int
    age_seconds: float | None
    refused: int
    away: bool
    stale: bool
    strength: float


class Subscriber:
    """Decides on the main process, and hands its tables to the others.

    puller: None on all but the main process. A snapshot older than `max_age_seconds` is stale,
    and then used on (keep), neutral weights are used until a fresh one comes (neutral), or
    training ends (stop).
    """

    def __init__(
        self,
        puller: Puller | None,
        config: SubscriberConfig,
        tables: TokenTables,
        ranks: Ranks,
        clock: Clock,
    ) -> None:
        self._puller = puller
        self._config = config
        self._ranks = ranks
        self._clock = clock
        self._newest = tables
        self._neutral = TokenTables.neutral(tables.vocab_size, tables.weights_V.device)
        self._device = tables.weights_V.device
        self._stale = False
        self._strength = 1.0
        self._changed = True
        self._used = tables

    def begin(self, stopping: Callable[[], bool] = lambda: False) -> TokenTables:
        """The tables to start with, on all processes: restored ones, the store's, or neutral.

        Waits up to `wait_seconds` for the first snapshot, unless `stopping` says that the run is
        to end. Raises like `at_step_boundary`.
        """
        if self._puller is not None:
            self._puller.start()
            if not self._newest.version and self._config.wait_seconds:
                log.info("waiting up to %g s for the first snapshot", self._config.wait_seconds)
                self._wait_first(self._puller, stopping)
            if not self._newest.version:
                log.info("training begins without a snapshot, all weights 1, until one comes")
        self._changed = True
        tables = self.at_step_boundary()
        assert tables is not None
        return tables

    def _wait_first(self, puller: Puller, stopping: Callable[[], bool]) -> None:
        deadline = self._clock.monotonic() + self._config.wait_seconds
        while not stopping() and (left := deadline - self._clock.monotonic()) > 0:
            if puller.wait_first(min(left, _LOOK_SECONDS)):
                return

    def at_step_boundary(self) -> TokenTables | None:
        """The tables to use from here on; None: those in use stay.

        Raises DataRefused on all processes when the snapshot is too old and the policy is stop,
        ConfigError while no snapshot could be used with this model.
        """
        decided, failure = self._decide() if self._ranks.is_main else (None, None)
        if self._ranks.count == 1:
            if failure is not None:
                raise failure
            return decided
        return self._hand_on(decided, failure)

    def set_strength(self, strength: float) -> None:
        """Blend the weights with 1 from the next boundary on; by the main process."""
        if strength != self._strength:
            self._strength = strength
            self._changed = True

    def status(self) -> SubscriberStatus:
        """What is in use, and how following goes."""
        puller = self._puller
        return SubscriberStatus(
            version=self._used.version,
            age_seconds=self._age_seconds(),
            refused=0 if puller is None else puller.refused,
            away=puller is not None and puller.away,
            stale=self._stale,
            strength=self._strength,
        )

    def state_dict(self) -> dict[str, Any]:
        """The newest tables themselves, so that a resumed run begins with the same weights."""
        return {
            "tensors": self._newest.tensors(),
            "facts": self._newest.facts(),
            "strength": self._strength,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin with saved tables."""
        self._newest = TokenTables.from_parts(state["tensors"], state["facts"]).to(self._device)
        self._strength = state["strength"]
        self._changed = True

    def close(self) -> None:
        """Stop following."""
        if self._puller is not None:
            self._puller.close()

    def _decide(self) -> tuple[TokenTables | None, StreamfreqError | None]:
        try:
            newer = self._puller.take() if self._puller is not None else None
        except StreamfreqError as error:
            return None, error
        if newer is not None and self._is_other(newer):
            self._newest, self._changed = newer, True
            log.info("token weights of snapshot %d", newer.version)
        failure = self._judge_age()
        if failure is not None or not self._changed:
            return None, failure
        self._changed = False
        neutral = self._stale and self._config.on_stale == "neutral"
        chosen = self._neutral if neutral else self._newest
        self._used = chosen.with_strength(self._strength)
        return self._used, None

    def _is_other(self, newer: TokenTables) -> bool:
        """Whether these are not the tables that a resumed run has already.

        A run that was saved with a newer snapshot than the store has now, because the store
        lost writes, keeps it until a newer one comes.
        """
        old = self._newest
        if not old.version:
            return True
        if newer.epoch == old.epoch:
            return newer.version > old.version
        return newer.created_at_ms > old.created_at_ms

    def _judge_age(self) -> DataRefused | None:
        age = self._age_seconds()
        limit = self._config.max_age_seconds
        stale = age is not None and math.isfinite(limit) and age > limit
        if stale == self._stale:
            return None
        self._stale, self._changed = stale, True
        version, policy = self._newest.version, self._config.on_stale
        if not stale:
            log.info("snapshot %d is fresh again", version)
            return None
        told = f"snapshot {version} is {age:,.0f} s old (subscriber.max_age_seconds = {limit:g})"
        if policy == "stop":
            return DataRefused(
                f"{told} and the policy is stop; see whether the daemon of job "
                f"{self._config.job} publishes, or set subscriber.on_stale to keep or neutral"
            )
        use = "it is used on" if policy == "keep" else "all weights are 1 until a fresh one comes"
        log.warning("%s: %s", told, use)
        return None

    def _age_seconds(self) -> float | None:
        if not self._newest.version:
            return None
        return max(0.0, (self._clock.now_ms() - self._newest.created_at_ms) / 1000)

    def _hand_on(
        self, decided: TokenTables | None, failure: StreamfreqError | None
    ) -> TokenTables | None:
        """One small message each step, and the tensors when there are others."""
        facts = None if decided is None else decided.facts()
        facts, failure = self._ranks.broadcast_object((facts, failure))
        if failure is not None:
            raise failure
        if facts is None:
            return None
        shapes = (decided or self._neutral).tensors()
        received = {
            name: self._ranks.broadcast_tensor(tensor if self._ranks.is_main else tensor.clone())
            for name, tensor in shapes.items()
        }
        tables = TokenTables.from_parts(received, facts).to(torch.device(self._device))
        if not self._ranks.is_main:
            self._used = self._newest = tables
        return tables
