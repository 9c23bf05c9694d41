"""Dead letters in memory and in a file: nothing is lost, and origins stay readable."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path

import pytest

from streamfreq.errors import ServiceUnavailable
from streamfreq.records import TopicPartition
from streamfreq.sources import DeadLetter, DeadLetters
from streamfreq.sources.dead_letters import FileDeadLetters, MemoryDeadLetters


def letter(offset: int, value: bytes = b"x") -> DeadLetter:
    return DeadLetter(TopicPartition("news", 2), offset, 1_000 + offset, value, "not JSON")


def test_a_file_holds_one_object_a_line(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    letters = FileDeadLetters(str(path))
    letters.put([letter(1, "é\n".encode()), letter(2, b"\xff\x00")])
    assert not path.exists()
    letters.flush()
    letters.flush()
    first, second = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    origin = {"reason": "not JSON", "topic": "news", "partition": 2}
    assert first == {**origin, "offset": 1, "timestamp_ms": 1_001, "text": "é\n"}
    assert base64.b64decode(second["base64"]) == b"\xff\x00"
    more = FileDeadLetters(str(path))
    more.put([letter(3)])
    more.close()
    assert len(path.read_text(encoding="utf-8").splitlines()) == 3


def test_a_file_that_can_t_be_written_keeps_the_letters(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "dead.jsonl"
    letters = FileDeadLetters(str(path))
    letters.put([letter(1)])
    with pytest.raises(ServiceUnavailable, match=r"dead_letter_file.*No such file"):
        letters.flush()
    path.parent.mkdir()
    letters.put([letter(2)])
    letters.flush()
    offsets = [json.loads(line)["offset"] for line in path.read_text().splitlines()]
    assert offsets == [1, 2]


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_letters_put_while_another_thread_flushes_are_not_lost(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "dead.jsonl"
    letters: DeadLetters = MemoryDeadLetters() if kind == "memory" else FileDeadLetters(str(path))
    done = threading.Event()

    def flush() -> None:
        while not done.is_set():
            letters.flush()

    flushing = [threading.Thread(target=flush) for _ in range(2)]
    for thread in flushing:
        thread.start()
    for offset in range(200):
        letters.put([letter(offset)])
    done.set()
    for thread in flushing:
        thread.join()
    letters.close()
    if isinstance(letters, MemoryDeadLetters):
        offsets = [item.offset for item in letters.letters]
    else:
        offsets = [json.loads(line)["offset"] for line in path.read_text().splitlines()]
    assert offsets == list(range(200))
