"""The demo's stream: records with event times, as a file or through a Kafka topic."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

DAYS = 7
"""So much event time the whole replay spans; the text itself has no dates."""


def with_event_times(texts: Sequence[str], end_ms: int) -> list[bytes]:
    """JSON records {"ts", "text"}: even event times over the last DAYS before `end_ms`."""
    step_ms = DAYS * 86_400_000 / max(len(texts), 1)
    begin_ms = end_ms - DAYS * 86_400_000
    return [
        json.dumps(
            {"ts": round(begin_ms + row * step_ms), "text": text}, ensure_ascii=False
        ).encode()
        for row, text in enumerate(texts)
    ]


def write_lines(records: Iterable[bytes], path: Path) -> None:
    """The records as JSON lines."""
    with path.open("wb") as file:
        for record in records:
            file.write(record + b"\n")


class TopicFeeder:
    """Produces the records into a topic at an even pace, in its own thread."""

    def __init__(
        self, servers: str, topic: str, records: Sequence[bytes], records_per_second: float
    ) -> None:
        from streamfreq.sources.kafka import TopicWriter

        self._writer = TopicWriter(servers, topic, partitions=3)
        self._records = records
        self._rate = records_per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)

    def start(self) -> None:
        """Begin to produce."""
        self._thread.start()

    def close(self) -> None:
        """Stop producing and let go of the connection."""
        self._stop.set()
        self._thread.join(5)
        self._writer.close()

    @property
    def done(self) -> bool:
        """Whether every record is in the topic."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        begun = time.monotonic()
        for row, record in enumerate(self._records):
            ahead = row / self._rate - (time.monotonic() - begun)
            if ahead > 0.02 and self._stop.wait(ahead):
                return
            self._writer.send(record)
        self._writer.flush()
