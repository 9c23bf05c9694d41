"""OUTPUT/metrics.jsonl: one JSON object per log interval, only appended to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamfreq.errors import ConfigError
from trainer.monitors.facts import Interval

FILE = "metrics.jsonl"


class History:
    """Appends intervals to a file; after a resume what lies behind the step is cut off."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self, step: int) -> None:
        """Keep the intervals up to `step`; raises ConfigError when the file can't be written."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            kept = [line for line in read_history(self._path) if line["step"] <= step]
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept)
            temporary = self._path.with_suffix(".tmp")
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(self._path)
        except OSError as error:
            raise ConfigError(
                f"output: {self._path} can't be written ({error.strerror})"
            ) from error

    def add(self, interval: Interval) -> None:
        """Append one interval."""
        line = json.dumps(interval.json(), ensure_ascii=False)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def read_history(path: Path) -> Iterator[dict[str, Any]]:
    """The intervals of a file, in order; a line that a crash cut is left out."""
    try:
        # Not splitlines: a token's text may hold characters that it takes for the end of a line.
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return
    for line in lines:
        try:
            read = json.loads(line)
        except ValueError:
            continue
        if isinstance(read, dict) and isinstance(read.get("step"), int):
            yield read
