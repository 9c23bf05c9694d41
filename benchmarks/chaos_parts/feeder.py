"""Keeps producing a real stream with event times, late, out of order, and sometimes broken."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from kafka import KafkaProducer
from kafka.errors import KafkaError
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from streamfreq.cli.demo.text import documentation

DAY_MS = 86_400_000
PASSES = range(-14, 1)
"""Of the stream, shifted by so many `PASS_MS`: the last has its own times, none is ahead of now."""
PASS_MS = 750 * DAY_MS
MADE_UP_START_MS = 1_600_000_000_000
MADE_UP_STEP_MS = 600_000


def real_stream(path: Path | None) -> Iterator[tuple[int, str]]:
    """Event time in ms and text: of a gzipped JSON-lines file, else of installed documentation.

    The documentation has no times of its own: a paragraph every ten minutes.
    """
    if path is None:
        for row, text in enumerate(documentation()):
            yield MADE_UP_START_MS + row * MADE_UP_STEP_MS, text
        return
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            yield int(record["ts"]), str(record["text"])


def train_tokenizer(path: Path | None, folder: Path) -> Path:
    """A byte-level BPE of 4,096 tokens, trained on the stream's first part; the folder it is in."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4_096,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (text for _, text in itertools.islice(real_stream(path), 5_000))
    tokenizer.train_from_iterator(texts, trainer)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


class Feeder(threading.Thread):
    """Produces until told to end, through every restart of the broker.

    2 % of the records are up to ten days late, 5 % up to an hour out of order, 0.5 % have no value
    or are not JSON.
    """

    def __init__(
        self,
        bootstrap: str,
        topics: Mapping[str, int],
        stream: Path | None,
        records_per_second: float,
        seed: int,
    ) -> None:
        super().__init__(name="feeder", daemon=True)
        self._partitions = [(topic, p) for topic, n in topics.items() for p in range(n)]
        self._stream = stream
        self._rate = records_per_second
        self._random = random.Random(seed)
        self._ending = threading.Event()
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=True,
            delivery_timeout_ms=120_000,
            linger_ms=20,
            compression_type="gzip",
        )
        self.sent = 0
        self.failed: str = ""

    def abandon(self) -> None:
        """Send no more, and wait for nothing: the trial is broken off."""
        self._ending.set()

    def end(self) -> None:
        """Send no more; returns when the broker has everything."""
        self._ending.set()
        self.join(150)

    def run(self) -> None:
        """Send at the rate, from the stream's beginning again when it ends, with later times.

        A time ahead of the clock would be clamped to it, and no recount could know when that was.
        """
        begun = time.monotonic()
        try:
            for number in itertools.chain(PASSES, itertools.repeat(PASSES[-1])):
                for time_ms, text in real_stream(self._stream):
                    if self._ending.is_set():
                        self._producer.flush(timeout=120)
                        return
                    self._send(time_ms + number * PASS_MS, text)
                    ahead = self.sent / self._rate - (time.monotonic() - begun)
                    if ahead > 0.02:
                        self._ending.wait(ahead)
        except KafkaError as error:
            self.failed = f"the feeder failed: {error!r}"
        finally:
            self._producer.close(timeout=10)

    def _send(self, time_ms: int, text: str) -> None:
        topic, partition = self._random.choice(self._partitions)
        value: bytes | None = json.dumps({"ts": self._skewed(time_ms), "text": text}).encode()
        key = None
        dice = self._random.random()
        if dice < 0.002:
            value, key = None, b"key"
        elif dice < 0.005:
            value = b'{"text": not json'
        self._producer.send(topic, value, key=key, partition=partition)
        self.sent += 1

    def _skewed(self, time_ms: int) -> int:
        dice = self._random.random()
        if dice < 0.02:
            return time_ms - self._random.randrange(10 * DAY_MS)
        if dice < 0.07:
            return time_ms + self._random.randrange(-1_800_000, 1_800_000)
        return time_ms
