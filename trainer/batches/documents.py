"""From a batch of records to documents: cleaned, masked and tokenized as the daemon does it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streamfreq.config import TextConfig, ValueConfig
from streamfreq.errors import BadRecord
from streamfreq.records import Int32Array, RecordBatch
from streamfreq.sources import DeadLetter, DeadLetters
from streamfreq.text import BadValue, TextPipeline
from streamfreq.tokenization import Tokenizer
from streamfreq.tokenization.isolation import encode_isolating

log = logging.getLogger("trainer.batches")

POISON = "poison"
"""Kind of a record on which the tokenizer itself fails."""


@dataclass(frozen=True, slots=True)
class Document:
    """One usable record's tokens, and the offset behind it."""

    ids_L: Int32Array
    next_offset: int


class Documents:
    """Turns records into documents and sets the bad ones aside; `bad` counts them by kind."""

    def __init__(
        self,
        value: ValueConfig,
        text: TextConfig,
        tokenizer: Tokenizer,
        dead_letters: DeadLetters | None,
    ) -> None:
        self._text = TextPipeline(value, text)
        self._tokenizer = tokenizer
        self._on_bad = value.on_bad
        self._dead_letters = dead_letters
        self.bad: Counter[str] = Counter()

    def of(self, batch: RecordBatch) -> Iterator[Document]:
        """The batch's documents in order.

        Raises BadRecord at a record whose policy is `stop`, behind the documents before it;
        ServiceUnavailable when dead letters can't be kept, before any document.
        """
        prepared = self._text.prepare(batch)
        tokens, usable_R = encode_isolating(self._tokenizer, prepared.texts)
        poison = [BadValue(int(row), POISON, self._on_bad) for row in prepared.rows_R[~usable_R]]
        bad = sorted((*prepared.bad, *poison), key=lambda value: value.row)
        stop = next((value for value in bad if value.policy == "stop"), None)
        self._set_aside(batch, [value for value in bad if stop is None or value.row < stop.row])
        ends_R = np.cumsum(tokens.lengths_R)
        for index, row in enumerate(prepared.rows_R.tolist()):
            if stop is not None and row > stop.row:
                break
            if usable_R[index]:
                first = int(ends_R[index] - tokens.lengths_R[index])
                ids_L = tokens.ids_N[first : int(ends_R[index])]
                yield Document(ids_L, int(batch.offsets_R[row]) + 1)
        if stop is not None:
            raise BadRecord(
                f"{batch.partition} offset {int(batch.offsets_R[stop.row])}: {stop.kind}; the "
                "policy is stop: mend the record, or set value.on_bad to skip or dead-letter"
            )

    def _set_aside(self, batch: RecordBatch, bad: list[BadValue]) -> None:
        letters = [
            DeadLetter(
                batch.partition,
                int(batch.offsets_R[value.row]),
                int(batch.timestamps_ms_R[value.row]),
                batch.values[value.row] or b"",
                value.kind,
            )
            for value in bad
            if value.policy == "dead-letter"
        ]
        if letters and self._dead_letters is not None:
            self._dead_letters.put(letters)
            self._dead_letters.flush()
        self.bad.update(value.kind for value in bad)


def split(batch: RecordBatch, most_bytes: int) -> Iterator[RecordBatch]:
    """The batch in parts of about `most_bytes` of values, one record each at least."""
    first, size = 0, 0
    for row, value in enumerate(batch.values):
        size += len(value or b"")
        if size >= most_bytes and row + 1 < len(batch):
            yield _part(batch, first, row + 1)
            first, size = row + 1, 0
    yield batch if first == 0 else _part(batch, first, len(batch))


def _part(batch: RecordBatch, first: int, last: int) -> RecordBatch:
    whole = batch if last == len(batch) else batch.before(last)
    return whole if first == 0 else whole.since(int(batch.offsets_R[first]))
