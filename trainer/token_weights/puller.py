"""Follows a job's snapshots in the background; what is ready waits to be taken at a step boundary.

The only module of the trainer that knows APScheduler.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

import torch
from apscheduler.schedulers.background import BackgroundScheduler

from streamfreq.clock import Clock
from streamfreq.errors import ConfigError, ServiceUnavailable, StreamfreqError
from streamfreq.snapshots import SnapshotReader, SnapshotStore
from trainer.token_weights.recipe import Recipe
from trainer.token_weights.tables import TokenTables

log = logging.getLogger("trainer.token_weights")

_HINT_WAIT_SECONDS = 60.0
_LONGEST_SECONDS = 10 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class _Ready:
    """Tables on their device, and what has to be waited for before they are used there."""

    tables: TokenTables
    wait: Callable[[], None]
    source: TokenTables | None = None  # pinned memory, which has to outlive the copy


class Puller:
    """Asks the store every `pull_interval_seconds`, and at each hint; verifies, builds, copies.

    `take` never waits for the store. What is damaged, of another tokenizer, or older than what
    was read is refused by `SnapshotReader`; the tables in use stay then, and while the store is
    away. So they do when a later snapshot does not fit the recipe, as after a change of the
    daemon's half-lives; when none has fitted yet, that is the user's to mend, and raised.
    """

    def __init__(
        self,
        store: SnapshotStore,
        fingerprint: str,
        recipe: Recipe,
        pull_interval_seconds: float,
        device: torch.device | str,
        clock: Clock,
    ) -> None:
        self._store = store
        self._reader = SnapshotReader(store, fingerprint)
        self._recipe = recipe
        self._device = torch.device(device)
        self._clock = clock
        self._interval = min(pull_interval_seconds, _LONGEST_SECONDS)
        self._turn = threading.Lock()
        self._ready_lock = threading.Lock()
        self._ready: _Ready | None = None
        self._first = threading.Event()
        self._mistake: ConfigError | None = None
        self._fitted = False
        self._unfit = 0
        self._terms_told = ""
        self._away_since: float | None = None
        self._closed = False
        self._pulled_at = clock.monotonic()
        quiet = logging.getLogger("trainer.token_weights.apscheduler")
        quiet.setLevel(logging.CRITICAL)
        self._scheduler = BackgroundScheduler(timezone="UTC", logger=quiet)
        self._hints = store.hints()
        self._listener = threading.Thread(target=self._listen, name="snapshot-hints", daemon=True)

    def start(self) -> None:
        """Begin to follow; the first pull is made at once, in the background."""
        self._scheduler.add_job(
            self.pull_now,
            "interval",
            seconds=self._interval,
            max_instances=1,
            coalesce=True,
            misfire_grace_time=None,
        )
        self._scheduler.start()
        self._listener.start()

    def take(self) -> TokenTables | None:
        """The newest tables that were not taken yet; never waits for the store.

        Raises ConfigError while no snapshot could be used with this model and configuration.
        """
        with self._ready_lock:
            ready, self._ready = self._ready, None
            mistake = self._mistake
        if mistake is not None:
            raise mistake
        if ready is None:
            return None
        ready.wait()
        return ready.tables

    def wait_first(self, timeout_seconds: float) -> bool:
        """Whether there is a snapshot, or a mistake to hear of, within the timeout."""
        return self._first.wait(timeout_seconds)

    def pull_now(self) -> None:
        """Look for a newer snapshot, in this thread; a failure is logged, never raised."""
        with self._turn:
            self._pulled_at = self._clock.monotonic()
            try:
                newer = self._reader.refresh()
                self._tell_back()
                if newer:
                    self._build()
            except ServiceUnavailable as error:
                if self._away_since is None:
                    self._away_since = self._clock.monotonic()
                    log.warning("%s; the weights in use stay", error)
            except ConfigError as error:
                self._does_not_fit(error)
            except StreamfreqError as error:
                log.error("%s; the weights in use stay", error)
            except Exception as error:
                log.error("a snapshot could not be used: %s: %s", type(error).__name__, error)

    @property
    def refused(self) -> int:
        """How many versions were refused: damaged, of another tokenizer, or unfit later on."""
        return self._reader.refused + self._unfit

    @property
    def away(self) -> bool:
        """Whether the store could not be reached the last time."""
        return self._away_since is not None

    def close(self) -> None:
        """Stop following."""
        if self._closed:
            return
        self._closed = True
        self._hints.close()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
        if self._listener.is_alive():
            self._listener.join(5)

    def _tell_back(self) -> None:
        if self._away_since is not None:
            away = self._clock.monotonic() - self._away_since
            self._away_since = None
            log.info("the snapshot store is back after %.0f s", away)

    def _build(self) -> None:
        snapshot = self._reader.snapshot
        assert snapshot is not None
        tables = self._recipe.build(snapshot)
        self._tell_terms(tables)
        ready = self._on_device(tables)
        with self._ready_lock:
            self._ready, self._mistake, self._fitted = ready, None, True
        self._first.set()

    def _does_not_fit(self, error: ConfigError) -> None:
        if self._fitted:
            self._unfit += 1
            snapshot = self._reader.snapshot
            version = 0 if snapshot is None else snapshot.version
            log.error("snapshot %d: %s; the weights in use stay", version, error)
            return
        with self._ready_lock:
            self._mistake = error
        self._first.set()

    def _tell_terms(self, tables: TokenTables) -> None:
        """Say what the terms come to, when that is another thing than before."""
        if self._recipe.terms is None:
            return
        told = self._recipe.terms.describe(tables.share_V.double().numpy())
        if told != self._terms_told:
            self._terms_told = told
            log.info("terms: %s", told)

    def _on_device(self, tables: TokenTables) -> _Ready:
        """Copy in a stream of its own, so that training is not held up."""
        if self._device.type != "cuda":
            return _Ready(tables.to(self._device), lambda: None)
        pinned = TokenTables.from_parts(
            {name: tensor.pin_memory() for name, tensor in tables.tensors().items()},
            tables.facts(),
        )
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            moved = pinned.to(self._device)
        copied = stream.record_event()

        def wait() -> None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(copied)
            for tensor in moved.tensors().values():
                tensor.record_stream(current)

        return _Ready(moved, wait, pinned)

    def _listen(self) -> None:
        """Pull at each hint; and when the scheduler, which counts by a wall clock, is late."""
        self.pull_now()
        while not self._closed:
            heard = self._hints.wait(min(self._interval, _HINT_WAIT_SECONDS))
            late = self._clock.monotonic() - self._pulled_at > 2 * self._interval
            if (heard or late) and not self._closed:
                self.pull_now()
