"""Dead letters in memory, and into a file of JSON lines."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from typing import BinaryIO

from streamfreq.errors import ServiceUnavailable
from streamfreq.sources.base import DeadLetter


class MemoryDeadLetters:
    """Letters in a list, for tests: `letters` are the flushed ones."""

    def __init__(self) -> None:
        self.letters: list[DeadLetter] = []
        self._taken: list[DeadLetter] = []

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """Take these letters."""
        self._taken.extend(letters)

    def flush(self) -> None:
        """Make the taken letters visible."""
        self.letters.extend(self._taken)
        self._taken.clear()

    def close(self) -> None:
        """Flush."""
        self.flush()


class FileDeadLetters:
    """Letters appended to a file, one JSON object a line, on the disk after `flush`.

    Fields: reason, topic, partition, offset, timestamp_ms, and the value as `text` where it is
    UTF-8, else as `base64`.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lines: list[bytes] = []

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """Take these letters; they are written by `flush`."""
        self._lines.extend(_line(letter) for letter in letters)

    def flush(self) -> None:
        """Append and sync to disk; what could not be written is kept for the next `flush`."""
        if not self._lines:
            return
        try:
            with open(self._path, "ab") as file:
                self._append(file)
        except OSError as error:
            raise ServiceUnavailable(
                f"value.dead_letter_file = {self._path!r} can't be written: {error.strerror}"
            ) from error
        self._lines.clear()

    def close(self) -> None:
        """Flush."""
        self.flush()

    def _append(self, file: BinaryIO) -> None:
        start = file.seek(0, os.SEEK_END)
        try:
            file.write(b"".join(self._lines))
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            # No half line may stand before the next attempt.
            os.truncate(self._path, start)
            raise


def _line(letter: DeadLetter) -> bytes:
    fields: dict[str, object] = {
        "reason": letter.reason,
        "topic": letter.partition.topic,
        "partition": letter.partition.partition,
        "offset": letter.offset,
        "timestamp_ms": letter.timestamp_ms,
    }
    try:
        fields["text"] = letter.value.decode()
    except UnicodeDecodeError:
        fields["base64"] = base64.b64encode(letter.value).decode()
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"
