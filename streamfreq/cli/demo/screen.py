"""What the demo shows while it runs: rate, lag, snapshots, rising tokens."""

from __future__ import annotations

import time
from pathlib import Path

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streamfreq.cli.demo.parts import ChildProcess, DemoConfig
from streamfreq.cli.output import moment, number, visible
from streamfreq.cli.views import Row, top_rows
from streamfreq.codec import Snapshot
from streamfreq.config import RedisConfig, SnapshotsConfig, TokenizerConfig
from streamfreq.snapshots import open_snapshots, write_snapshot_file
from streamfreq.tokenization import load_tokenizer

RISING = 10


class Screen:
    """A live table on a terminal; a line every refresh elsewhere."""

    def __init__(
        self,
        config: DemoConfig,
        daemon: ChildProcess,
        records: int,
        trainer: ChildProcess | None = None,
        *,
        live_topic: bool = False,
    ) -> None:
        self._daemon = daemon
        self._trainer = trainer
        self._training: dict[str, float] = {}
        self._live_topic = live_topic
        self._total = records
        self._store = open_snapshots(
            RedisConfig(url=config.redis_url), SnapshotsConfig(), config.job
        )
        self._tokenizer = load_tokenizer(TokenizerConfig(path=config.tokenizer))
        self._snapshot: Snapshot | None = None
        self._rows: list[Row] = []
        self._samples: list[tuple[float, float]] = []
        self._metrics: dict[str, float] = {}
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False, transient=False)

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    @property
    def done(self) -> bool:
        """Whether every record is counted, and read by the trainer."""
        return _records(self._metrics, "streamfreq") >= self._total and self._trained

    @property
    def _trained(self) -> bool:
        trainer = self._trainer
        if trainer is None or trainer.ended:
            return True
        # From a topic it never ends by itself; from a file it does, behind the last step.
        return self._live_topic and _records(self._training, "trainer") >= self._total

    def refresh(self) -> None:
        """Look at the daemon's metrics and the newest snapshot, and show them."""
        self._metrics = self._daemon.metrics()
        if self._trainer is not None:
            self._training = self._trainer.metrics() or self._training
        counted = self._metrics.get("streamfreq_records_total", 0.0)
        if self._metrics:
            self._samples = [*self._samples[-8:], (time.monotonic(), counted)]
        self._look_at_snapshot()
        if self._console.is_terminal:
            self._live.update(self._table(), refresh=True)
        elif self._metrics:
            click.echo(self._line())

    def last_snapshot(self, path: Path) -> int:
        """Keep what the daemon published last, at its end, as a file; its version."""
        self._look_at_snapshot()
        snapshot = self._snapshot
        if snapshot is None:
            return 0
        write_snapshot_file(snapshot, path)
        return snapshot.version

    def _look_at_snapshot(self) -> None:
        version = self._store.latest_version()
        if self._snapshot is not None and self._snapshot.version == version:
            return
        snapshot = self._store.load(version) if version else None
        if snapshot is not None:
            self._snapshot = snapshot
            text = self._tokenizer.token_text
            rows = top_rows(snapshot, 0, 20 * RISING, text, rising=True)
            self._rows = [row for row in rows if _is_word(row.token or "")][:RISING]

    def _rate(self) -> float:
        if len(self._samples) < 2:
            return 0.0
        (begun, first), (now, last) = self._samples[0], self._samples[-1]
        return (last - first) / (now - begun) if now > begun else 0.0

    def _facts(self) -> list[tuple[str, str]]:
        metrics = self._metrics
        snapshot = self._snapshot
        return [
            ("records", f"{number(metrics.get('streamfreq_records_total', 0))} of {self._total:,}"),
            ("rate", f"{self._rate():,.0f} records/s"),
            ("tokens", number(metrics.get("streamfreq_tokens_total", 0))),
            ("lag", f"{number(metrics.get('streamfreq_lag_records', 0))} records"),
            ("snapshot", f"version {snapshot.version}" if snapshot else "none yet"),
            ("as of", moment(snapshot.as_of_ms) if snapshot else "-"),
            ("memory", f"{metrics.get('streamfreq_memory_bytes', 0) / 1e6:,.0f} MB"),
            *self._training_facts(),
        ]

    def _training_facts(self) -> list[tuple[str, str]]:
        training = self._training
        if self._trainer is None:
            return []
        if not training.get("trainer_steps_total"):
            return [("trainer", "starting")]
        return [
            (
                "trainer",
                f"step {number(training['trainer_steps_total'])}, "
                f"loss {training.get('trainer_plain_loss', 0):.2f}, "
                f"weights of version {training.get('trainer_snapshot_version', 0):.0f}",
            )
        ]

    def _line(self) -> str:
        facts = "  ".join(f"{name}: {value}" for name, value in self._facts())
        rising = " ".join(visible(row.token or f"#{row.token_id}") for row in self._rows[:6])
        return f"{facts}  rising: {rising}"

    def _table(self) -> Group:
        facts = Table.grid(padding=(0, 2))
        for name, value in self._facts():
            facts.add_row(Text(name, style="dim"), Text(value))
        if self._snapshot is None:
            return Group(facts)
        rising = Table(title="Rising now: half-life 6 h against all", title_justify="left")
        for head in ("token", "count (6 h)", "times expected", "weight"):
            rising.add_column(head, justify="left" if head == "token" else "right")
        for row in self._rows:
            rising.add_row(
                Text(visible(row.token or f"#{row.token_id}")),
                number(row.count),
                f"{row.ratio or 1:.1f}",
                f"{row.weights.get('default', 1.0):.2f}",
            )
        return Group(facts, rising)


def _records(metrics: dict[str, float], program: str) -> float:
    """Records used and records set aside, so far."""
    used = metrics.get(f"{program}_records_total", 0.0)
    return used + metrics.get(f"{program}_bad_records_total", 0.0)


def _is_word(token: str) -> bool:
    """Pieces from inside of words are true to the tokenizer but tell a person little."""
    word = token.strip()
    return len(word) > 3 and word.isalpha() and (token[0] == " " or word == token.capitalize())
