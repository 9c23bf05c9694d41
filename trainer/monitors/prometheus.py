"""The trainer's numbers for Prometheus, on a registry and a port of their own."""

from __future__ import annotations

import logging
import threading
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from streamfreq.errors import ConfigError
from trainer.monitors.facts import Interval, RunFacts

log = logging.getLogger("trainer.monitors")

METRICS = {
    "trainer_steps_total": "Optimizer steps, skipped ones included.",
    "trainer_skipped_steps_total": "Steps without an update: NaN, infinity, or no token.",
    "trainer_tokens_total": "Tokens trained on, replayed ones included.",
    "trainer_records_total": "Records read.",
    "trainer_bad_records_total": "Records that were not used.",
    "trainer_plain_loss": "Mean cross entropy of the last interval, nats.",
    "trainer_weighted_loss": "What was minimised in the last interval.",
    "trainer_prequential_loss": "Of new tokens before they were learned.",
    "trainer_band_loss": "The same by band of token frequency.",
    "trainer_gradient_norm": "Before clipping, the last step's.",
    "trainer_learning_rate": "The highest of all groups.",
    "trainer_effective_sample_size": "Of the token weights; 1 when all are alike.",
    "trainer_strength": "How much of the weights is used; the guard lowers it.",
    "trainer_snapshot_version": "In use; 0: none.",
    "trainer_snapshot_age_seconds": "Since the snapshot in use was published.",
    "trainer_snapshot_stale": "1 when it is older than max_age_seconds.",
    "trainer_snapshots_refused_total": "Damaged, or of another tokenizer.",
    "trainer_store_away": "1 while the snapshot store can't be reached.",
    "trainer_lag_records": "In the stream, not read yet.",
    "trainer_replay_blocks": "In the replay buffer.",
    "trainer_tokens_per_second": "Of the last interval.",
    "trainer_waiting_ratio": "Share of the last interval spent waiting for data.",
    "trainer_weighting_seconds": "Time for weighting in the last interval.",
}
"""Every metric with its meaning."""


class PrometheusExport:
    """Gauges that show the last interval, served at /metrics."""

    def __init__(self, host: str, port: int) -> None:
        self.registry = CollectorRegistry()
        self._gauges = {
            name: Gauge(name, text, ("band",) if name == "trainer_band_loss" else (),
                        registry=self.registry)
            for name, text in METRICS.items()
        }  # fmt: skip
        self._server: WSGIServer | None = None
        self._thread: threading.Thread | None = None
        if port >= 0:
            self._serve(host, port)

    def show(self, interval: Interval, totals: dict[str, float]) -> None:
        """The numbers of an interval, and what adds up from the beginning."""
        values: dict[str, float | None] = {
            "trainer_steps_total": float(interval.step),
            "trainer_records_total": float(interval.records),
            "trainer_bad_records_total": float(interval.bad_records),
            "trainer_plain_loss": interval.plain,
            "trainer_weighted_loss": interval.weighted,
            "trainer_prequential_loss": interval.prequential,
            "trainer_gradient_norm": interval.gradient_norm,
            "trainer_learning_rate": interval.learning_rate,
            "trainer_effective_sample_size": interval.effective_sample_size,
            "trainer_snapshot_version": float(interval.version),
            "trainer_tokens_per_second": interval.tokens_per_second,
            "trainer_waiting_ratio": interval.waiting,
            "trainer_weighting_seconds": interval.seconds.get("weighting"),
            **totals,
        }
        self._set(values)
        self._gauges["trainer_band_loss"].clear()
        for name, band in (interval.prequential_bands or interval.bands).items():
            self._gauges["trainer_band_loss"].labels(name).set(band.loss)

    def show_facts(self, facts: RunFacts) -> None:
        """What changes while no step is made, too."""
        self._set(
            {
                "trainer_records_total": float(facts.records),
                "trainer_bad_records_total": float(facts.bad_records),
                "trainer_strength": facts.strength,
                "trainer_snapshot_age_seconds": facts.snapshot_age_seconds,
                "trainer_snapshot_stale": float(facts.snapshot_stale),
                "trainer_snapshots_refused_total": float(facts.refused),
                "trainer_store_away": float(facts.snapshot_away),
                "trainer_lag_records": None
                if facts.lag_records is None
                else float(facts.lag_records),
                "trainer_replay_blocks": float(facts.replay_blocks),
            }
        )

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(5)
            self._server = None

    def _set(self, values: dict[str, float | None]) -> None:
        for name, value in values.items():
            self._gauges[name].set(float("nan") if value is None else value)

    def _serve(self, host: str, port: int) -> None:
        try:
            self._server, self._thread = start_http_server(port, host, registry=self.registry)
        except OSError as error:
            raise ConfigError(
                f"monitors.http_port = {port}: can't listen on {host} ({error.strerror}); give "
                "another port, 0 for any free one, or -1 for none"
            ) from error
        log.info("metrics on http://%s:%d/metrics", host, self._server.server_port)
