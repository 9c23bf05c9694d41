"""The loop: at each step boundary the newest weights, then rows, then one optimizer step.

1. Swap the token tables, the same version on all processes.
2. The main process chooses the rows of the step, and every process gets its own.
3. Score the new rows, if the training forward can't do it.
4. Step.
5. Watch: losses, bands, the guard.
6. Save, export, when it is due.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from streamfreq.errors import StreamfreqError
from trainer.batches import BlockStream, Mixer, Row
from trainer.blocks import Batch
from trainer.config import TrainerConfig
from trainer.monitors import Monitors, RunFacts
from trainer.replay import ReplayBuffer
from trainer.step import TrainStep
from trainer.subscriber import Subscriber
from trainer.token_weights import TokenTables
from trainer.worker.rows import Order, RowSharing
from trainer.worker.saving import Saver
from trainer.worker.scoring import Scorer

log = logging.getLogger("trainer.worker")

_TELL_SECONDS = 60.0
_WAIT_SECONDS = 1.0
"""The main process tells the others so often that there is nothing to train on yet."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What only the main process has: the stream, the mixer and the replay buffer."""

    stream: BlockStream
    mixer: Mixer
    replay: ReplayBuffer


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that a worker works with; `reading` is None on all but the main process."""

    module: nn.Module
    step: TrainStep
    subscriber: Subscriber
    sharing: RowSharing
    reading: Reading | None
    scorer: Scorer | None
    monitors: Monitors
    saver: Saver


class Worker:
    """One process of a training run; `run` returns when it has ended in order."""

    def __init__(self, parts: Parts, config: TrainerConfig) -> None:
        self._parts = parts
        self._config = config
        self._stopping = False
        self._failure: StreamfreqError | None = None
        self._tables: TokenTables | None = None
        self._step = 0
        self._saved = 0
        self._exported = 0
        self._stepped_at = self._told_at = time.monotonic()

    def stop(self) -> None:
        """End in order after the present step; safe in a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Train until there is an end: the stream's, max_steps, or `stop`.

        When reading becomes impossible, or a snapshot too old, what was learned is saved before
        that is raised. When the steps themselves fail, the last resume state stays as it is.
        """
        try:
            self._begin()
            while self._turn():
                pass
            self._parts.monitors.finish(self._step, self._facts)
            self._save()
            self._export()
            if self._failure is not None:
                raise self._failure
        finally:
            self._close()

    def _begin(self) -> None:
        parts = self._parts
        self._step = self._saved = self._exported = parts.saver.restore()
        parts.monitors.begin(self._step)
        if parts.reading is not None:
            parts.reading.stream.open(parts.reading.mixer.stream_state)
        self._use(parts.subscriber.begin(lambda: self._stopping))

    def _close(self) -> None:
        parts = self._parts
        parts.subscriber.close()
        if parts.reading is not None:
            parts.reading.stream.close()
        parts.monitors.close()

    def _turn(self) -> bool:
        """One step, or a short wait; whether to go on."""
        parts = self._parts
        try:
            self._use(parts.subscriber.at_step_boundary())  # 1
        except StreamfreqError as error:
            self._failure = error
            return False
        began = time.monotonic()
        order, rows = self._choose()
        order, batches = parts.sharing.share(order, rows)  # 2
        waited_seconds = time.monotonic() - began
        if order is Order.TRAIN:
            self._train(batches, waited_seconds)
            return True
        parts.monitors.waited(waited_seconds, self._facts)
        self._tell_waiting()
        return order is not Order.END

    def _tell_waiting(self) -> None:
        """A line now and then while nothing comes, so that silence is no riddle."""
        now = time.monotonic()
        if now - self._told_at >= _TELL_SECONDS and self._parts.reading is not None:
            self._told_at = now
            records = self._parts.reading.stream.stats().records
            log.info(
                "waiting for the stream: no step for %.0f s, %d records so far",
                *(now - self._stepped_at, records),
            )

    def _train(self, batches: Sequence[Batch], waited_seconds: float) -> None:
        parts = self._parts
        assert self._tables is not None
        if parts.scorer is not None:
            parts.monitors.observe_scores(parts.scorer.score(batches))  # 3
        report = parts.step.run(batches, self._tables)  # 4
        self._stepped_at = self._told_at = time.monotonic()
        self._step = report.step
        if parts.reading is not None:
            parts.reading.stream.trained(parts.reading.mixer.stream_state)
        parts.monitors.observe(report, waited_seconds)  # 5
        strength = parts.monitors.maybe_log(self._step, self._facts)
        if strength is not None:
            parts.subscriber.set_strength(strength)
        save, export = self._config.save.interval_steps, self._config.save.export_interval_steps
        if self._step % save == 0:  # 6
            self._save()
        if export and self._step % export == 0:
            self._export()

    def _choose(self) -> tuple[Order, Sequence[Row]]:
        """What comes next, by the main process; the others are told."""
        reading = self._parts.reading
        if reading is None:
            return Order.WAIT, ()
        limit = self._config.max_steps
        if self._stopping or (limit and self._step >= limit):
            return Order.END, ()
        try:
            rows = reading.mixer.next(_WAIT_SECONDS)
        except StreamfreqError as error:
            self._failure = error
            return Order.END, ()
        if rows is not None:
            return Order.TRAIN, rows
        return (Order.END if reading.mixer.ended else Order.WAIT), ()

    def _use(self, tables: TokenTables | None) -> None:
        if tables is None:
            return
        self._tables = tables
        self._parts.monitors.swapped(tables)
        if self._parts.reading is not None:
            self._parts.reading.replay.reweigh(tables)

    def _facts(self) -> RunFacts:
        """What the monitors can't see for themselves."""
        status = self._parts.subscriber.status()
        reading = self._parts.reading
        stats = None if reading is None else reading.stream.stats()
        return RunFacts(
            records=0 if stats is None else stats.records,
            bad_records=0 if stats is None else sum(stats.bad.values()),
            lag_records=None if stats is None else stats.lag_records,
            queued_blocks=0 if stats is None else stats.queued_blocks,
            replay_blocks=0 if reading is None else len(reading.replay),
            snapshot_age_seconds=status.age_seconds,
            snapshot_away=status.away,
            snapshot_stale=status.stale,
            refused=status.refused,
            strength=status.strength,
        )

    def _save(self) -> None:
        if self._step > self._saved:
            self._parts.saver.save(self._step)
            self._saved = self._step

    def _export(self) -> None:
        if self._step > self._exported:
            self._parts.saver.export(self._step, self._parts.module, self._provenance())
            self._exported = self._step

    def _provenance(self) -> dict[str, Any]:
        tables, reading = self._tables, self._parts.reading
        offsets: dict[str, dict[str, int]] = {}
        if reading is not None:
            for partition, offset in sorted(reading.mixer.stream_state.offsets.items()):
                offsets.setdefault(partition.topic, {})[str(partition.partition)] = offset
        facts = {} if tables is None else tables.facts()
        return {"snapshot": {"job": self._config.subscriber.job, **facts}, "offsets": offsets}
