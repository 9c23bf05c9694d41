"""Dead letters in memory, and into a file of JSON lines."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Sequence

from streamfreq.errors import ServiceUnavailable
from streamfreq.sources.base import FLUSH_TIMEOUT_SECONDS, DeadLetter
from streamfreq.sources.letter_box import LetterBox


class MemoryDeadLetters:
    """Letters in a list, for tests: `letters` are the flushed ones."""

    def __init__(self) -> None:
        self.letters: list[DeadLetter] = []
        self._box = LetterBox()
        self._flushing = threading.Lock()

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """Take these letters."""
        self._box.put(letters)

    def flush(self, timeout_seconds: float = FLUSH_TIMEOUT_SECONDS) -> None:
        """Make the taken letters visible."""
        with self._flushing, self._box.taken() as letters:
            self.letters.extend(letters)

    def close(self) -> None:
        """Flush."""
        self.flush()


class FileDeadLetters:
    """Letters appended to a file, one JSON object a line; `put` and `flush` by any thread.

    Fields: reason, topic, partition, offset, timestamp_ms, and the value as `text` where it is
    UTF-8, else as `base64`.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._box = LetterBox()
        self._flushing = threading.Lock()

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """Take these letters; they are written by `flush`."""
        self._box.put(letters)

    def flush(self, timeout_seconds: float = FLUSH_TIMEOUT_SECONDS) -> None:
        """Append, and return when the disk has it.

        Raises ServiceUnavailable when it can't; the letters are kept for the next `flush`.
        """
        with self._flushing, self._box.taken() as letters:
            if not letters:
                return
            try:
                self._append(b"".join(map(_line, letters)))
            except OSError as error:
                raise ServiceUnavailable(
                    f"value.dead_letter_file = {self._path!r} can't be written: {error.strerror}"
                ) from error

    def close(self) -> None:
        """Flush."""
        self.flush()

    def _append(self, lines: bytes) -> None:
        with open(self._path, "ab", buffering=0) as file:
            start = file.seek(0, os.SEEK_END)
            try:
                if file.write(lines) != len(lines):
                    raise OSError(0, "the disk took only a part")
                os.fsync(file.fileno())
            except OSError:
                # No half line may stand before the next attempt.
                file.truncate(start)
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
