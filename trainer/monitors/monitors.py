"""The facade: takes reports, and shows an interval of them in every output."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from streamfreq.clock import Clock
from trainer.config import MonitorsConfig
from trainer.monitors.bands import TAIL, UNSEEN, Bands
from trainer.monitors.facts import Interval, Risen, RunFacts
from trainer.monitors.guard import RareBandGuard
from trainer.monitors.history import FILE, History
from trainer.monitors.losses import BandLoss, BandLosses, Reduce, mean
from trainer.monitors.progress import tell
from trainer.monitors.prometheus import PrometheusExport
from trainer.monitors.tensorboard import TensorBoardWriter
from trainer.reports import StepReport, TokenLosses
from trainer.token_weights import TokenTables

RISING = 12
FOLLOWED = 36
"""So many of those that have risen most are followed on, also when they fall again."""
LEAST_COUNT_OF_RISING = 3.0


class Monitors:
    """Watches training; every process observes, the main one writes.

    token_text: what people see for a token id. reduce: the sum of a tensor over all processes.
    """

    def __init__(
        self,
        config: MonitorsConfig,
        output: Path,
        clock: Clock,
        *,
        is_main: bool,
        reduce: Reduce,
        token_text: Callable[[int], str],
        special_ids: Collection[int] = (),
    ) -> None:
        self._config = config
        self._output = output
        self._clock = clock
        self._is_main = is_main
        self._reduce = reduce
        self._token_text = token_text
        self._special_ids = tuple(special_ids)
        self._risen: dict[int, float] = {}
        self._history = History(output / FILE)
        self._board: TensorBoardWriter | None = None
        self._prometheus = PrometheusExport(config.http_host, config.http_port) if is_main else None
        self._guard = RareBandGuard(config)
        self._tables: TokenTables | None = None
        self._bands: Bands | None = None
        self._tokens = 0
        self._skipped = 0
        self._sums: Tensor | None = None
        self._last: StepReport | None = None
        self._begin_interval()

    def begin(self, step: int) -> None:
        """A run begins behind `step`; what a crash has left behind it is cut off."""
        if self._is_main:
            self._history.begin(step)
            if self._config.tensorboard:
                self._board = TensorBoardWriter(self._output / "tensorboard", step)

    def swapped(self, tables: TokenTables) -> None:
        """These tables are in use from the next step on."""
        self._tables = tables
        self._bands = Bands.of(tables, self._config, self._special_ids)

    def observe_scores(self, scores: Sequence[TokenLosses]) -> None:
        """Losses of new rows from a forward pass of their own, before the step."""
        assert self._bands is not None
        for losses in scores:
            self._fresh.add(losses, self._bands, fresh_only=True)

    def observe(self, report: StepReport, wait_seconds: float) -> None:
        """Take one step's report; nothing waits for the device."""
        assert self._bands is not None
        by_forward = self._config.prequential in ("auto", "forward")
        for losses in report.token_losses:
            self._all.add(losses, self._bands, fresh_only=False)
            if by_forward and not self.scored_separately:
                self._fresh.add(losses, self._bands, fresh_only=True)
        self._last = report
        self._waited_seconds += wait_seconds
        for name, seconds in report.seconds.items():
            self._seconds[name] += seconds
        if report.skipped:
            self._skipped += 1
            return
        sums = torch.stack(
            [
                report.weighted_sum.double(),
                report.weight_sum.double(),
                report.squared_weight_sum.double(),
                report.plain_sum.double(),
                report.tokens.double(),
            ]
        )
        self._sums = sums if self._sums is None else self._sums + sums

    def waited(self, seconds: float, facts: Callable[[], RunFacts]) -> None:
        """Nothing was there to train on for so long."""
        self._waited_seconds += seconds
        if self._prometheus is not None:
            self._prometheus.show_facts(facts())

    def maybe_log(self, step: int, facts: Callable[[], RunFacts]) -> float | None:
        """At the end of an interval show it; the strength for the weights if it is another now.

        Every process calls it at the same steps.
        """
        if step % self._config.log_interval_steps:
            return None
        return self._end_interval(step, facts)

    def finish(self, step: int, facts: Callable[[], RunFacts]) -> None:
        """The run ends behind `step`: show what is left of an interval."""
        if self._last is not None:
            self._end_interval(step, facts)

    def _end_interval(self, step: int, facts: Callable[[], RunFacts]) -> float | None:
        assert self._tables is not None
        device = self._tables.weights_V.device
        fresh, every = (losses.take(self._reduce, device) for losses in (self._fresh, self._all))
        before = self._guard.strength
        strength = self._watch(fresh or every)
        if self._is_main:
            self._show(step, facts(), fresh, every)
        self._begin_interval()
        return strength if strength != before else None

    def state_dict(self) -> dict[str, Any]:
        """The guard, and what adds up from the beginning."""
        return {
            "guard": self._guard.state_dict(),
            "tokens": self._tokens,
            "skipped": self._skipped,
            "risen": [[token_id, rise] for token_id, rise in self._risen.items()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        self._guard.load_state_dict(state["guard"])
        self._tokens, self._skipped = state["tokens"], state["skipped"]
        self._risen = dict(state["risen"])

    def close(self) -> None:
        """Flush the curves, stop serving."""
        if self._board is not None:
            self._board.close()
        if self._prometheus is not None:
            self._prometheus.close()

    scored_separately = False
    """Set when `observe_scores` brings the losses of new rows."""

    def _begin_interval(self) -> None:
        self._fresh, self._all = BandLosses(), BandLosses()
        self._sums = self._last = None
        self._waited_seconds = 0.0
        self._seconds: dict[str, float] = defaultdict(float)
        self._began = time.monotonic()

    def _watch(self, bands: Mapping[str, BandLoss]) -> float:
        rare = {name: band for name, band in bands.items() if name in (TAIL, UNSEEN)}
        rest = {name: band for name, band in bands.items() if name not in rare}
        tail, others = mean(rare), mean(rest)
        if tail is None or others is None or not self._tables or not self._tables.version:
            return self._guard.strength
        return self._guard.observe(tail.loss, others.loss)

    def _show(
        self,
        step: int,
        facts: RunFacts,
        fresh: dict[str, BandLoss],
        every: dict[str, BandLoss],
    ) -> None:
        interval = self._interval(step, facts, fresh, every)
        tell(interval)
        self._history.add(interval)
        if self._board is not None:
            self._board.add(interval)
        if self._prometheus is not None:
            totals = {
                "trainer_tokens_total": float(self._tokens),
                "trainer_skipped_steps_total": float(self._skipped),
            }
            self._prometheus.show(interval, totals)
            self._prometheus.show_facts(facts)

    def _interval(
        self,
        step: int,
        facts: RunFacts,
        fresh: dict[str, BandLoss],
        every: dict[str, BandLoss],
    ) -> Interval:
        assert self._tables is not None
        assert self._last is not None
        weighted, weights, squares, plain, tokens = (
            [0.0] * 5 if self._sums is None else self._sums.tolist()
        )
        self._tokens += round(tokens)
        elapsed = max(1e-9, time.monotonic() - self._began)
        prequential = mean(fresh)
        return Interval(
            step=step,
            created_at_ms=self._clock.now_ms(),
            records=facts.records,
            tokens=self._tokens,
            plain=plain / tokens if tokens else None,
            weighted=weighted / weights if weights else None,
            prequential=None if prequential is None else prequential.loss,
            prequential_bands=fresh,
            bands=every,
            effective_sample_size=weights**2 / squares / tokens if squares and tokens else None,
            gradient_norm=_finite(self._last.gradient_norm),
            learning_rate=self._last.learning_rate,
            skipped_steps=self._skipped,
            tokens_per_second=tokens / elapsed,
            waiting=min(1.0, self._waited_seconds / elapsed),
            seconds=dict(self._seconds),
            version=self._tables.version,
            snapshot_age_seconds=facts.snapshot_age_seconds,
            snapshot_away=facts.snapshot_away,
            snapshot_stale=facts.snapshot_stale,
            refused=facts.refused,
            strength=facts.strength,
            lag_records=facts.lag_records,
            bad_records=facts.bad_records,
            replay_blocks=facts.replay_blocks,
            rising=self._rising(),
        )

    def _rising(self) -> list[Risen]:
        """The tokens that have risen most at any time, those seen a few times at least."""
        tables = self._tables
        assert tables is not None
        if not tables.version:
            return []
        rise_V = torch.where(tables.count_V >= LEAST_COUNT_OF_RISING, tables.rise_V, 0.0)
        values, ids = torch.topk(rise_V, min(RISING, len(rise_V)))
        for rise, token_id in zip(values.tolist(), ids.tolist(), strict=True):
            if rise > 1.0:
                self._risen[token_id] = max(rise, self._risen.get(token_id, 0.0))
        highest = sorted(self._risen, key=lambda id_: (-self._risen[id_], id_))[:FOLLOWED]
        self._risen = {token_id: self._risen[token_id] for token_id in highest}
        return [
            Risen(
                token_id,
                self._token_text(token_id),
                round(float(tables.weights_V[token_id]), 4),
                round(float(tables.rise_V[token_id]), 3),
                round(float(tables.count_V[token_id]), 2),
            )
            for token_id in highest
        ]


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None
