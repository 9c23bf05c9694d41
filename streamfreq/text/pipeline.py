"""One batch of records to the texts that are counted, their event times, and what was bad.

Shape legend: R the records of the batch that are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamfreq.config import TextConfig, ValueConfig
from streamfreq.records import Int64Array, RecordBatch
from streamfreq.text.cleaning import Cleaner
from streamfreq.text.masking import Masker
from streamfreq.text.values import JsonReader, TextReader, Unusable


@dataclass(frozen=True, slots=True)
class BadValue:
    """A record that is not used.

    Attributes:
        row: its index in the batch.
        kind: null; empty (the value, or what cleaning left of it); not_json; no_text_field
            (missing, or no string); too_large; invalid_utf8 (unless its policy is replace).
        policy: what the configuration says to do: skip, dead-letter or stop.
    """

    row: int
    kind: str
    policy: str


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """The usable texts of a batch, and an account of the rest.

    Attributes:
        texts: cleaned and masked, valid Unicode, none empty.
        rows_R: index of each text's record in the batch, ascending.
        event_times_ms_R: from the JSON field where it is configured and usable, else the record's
            own timestamp (NO_TIMESTAMP where it has none).
        bad: the records that are not used, by row.
        tallies: how many records of each kind: those of `bad`, and used ones worth a count:
            replaced_utf8, replaced_surrogate (a JSON escape), bad_time (missing or not usable).
    """

    texts: list[str]
    rows_R: Int64Array
    event_times_ms_R: Int64Array
    bad: tuple[BadValue, ...]
    tallies: dict[str, int]

    def __len__(self) -> int:
        return len(self.texts)


class TextPipeline:
    """Decodes, cleans and masks the values of record batches. Keeps no state between batches."""

    def __init__(self, value: ValueConfig, text: TextConfig) -> None:
        """Raises ConfigError when a phone region is unknown."""
        self._max_bytes = value.max_record_bytes
        self._policies = {"null": "skip", "empty": "skip", "invalid_utf8": value.on_invalid_utf8}
        self._on_bad = value.on_bad
        self._reader = JsonReader(value) if value.format == "json" else TextReader(value)
        self._cleaner = Cleaner(text)
        self._masker = Masker(text) if text.mask else None

    def prepare(self, batch: RecordBatch) -> PreparedBatch:
        """The texts of `batch`. Never raises for a record: a bad one is labelled."""
        tallies: Counter[str] = Counter()
        bad: list[BadValue] = []
        texts, rows, times_ms = self._read(batch.values, bad, tallies)
        texts = self._cleaner.clean_batch(texts)
        if "" in texts:
            bad += [
                self._label(row, "empty") for row, text in zip(rows, texts, strict=True) if not text
            ]
            bad.sort(key=lambda value: value.row)
            kept = [index for index, text in enumerate(texts) if text]
            texts, rows = [texts[index] for index in kept], [rows[index] for index in kept]
        if self._masker is not None:
            texts = self._masker.mask_batch(texts)
        tallies.update(value.kind for value in bad)
        rows_R = np.array(rows, np.int64)
        return PreparedBatch(
            texts, rows_R, _event_times_ms(batch, times_ms)[rows_R], tuple(bad), dict(tallies)
        )

    def _read(
        self, values: Sequence[bytes | None], bad: list[BadValue], tallies: Counter[str]
    ) -> tuple[list[str], list[int], dict[int, int]]:
        """Texts and rows of the values that could be read, and event times by row; fills `bad`."""
        if max(map(len, filter(None, values)), default=0) <= self._max_bytes:
            plain = self._reader.read_plain(values)
            if plain is not None:
                return plain, list(range(len(plain))), {}
        texts: list[str] = []
        rows: list[int] = []
        times_ms: dict[int, int] = {}
        read, max_bytes = self._reader.read, self._max_bytes
        for row, value in enumerate(values):
            if not value:
                bad.append(self._label(row, "null" if value is None else "empty"))
                continue
            if len(value) > max_bytes:
                bad.append(self._label(row, "too_large"))
                continue
            try:
                text, time_ms = read(value, tallies)
            except Unusable as reason:
                bad.append(self._label(row, reason.kind))
                continue
            texts.append(text)
            rows.append(row)
            if time_ms is not None:
                times_ms[row] = time_ms
        return texts, rows, times_ms

    def _label(self, row: int, kind: str) -> BadValue:
        return BadValue(row, kind, self._policies.get(kind, self._on_bad))


def _event_times_ms(batch: RecordBatch, times_ms: dict[int, int]) -> Int64Array:
    """Event time of every record of the batch: its own timestamp, or the one in `times_ms`."""
    if not times_ms:
        return batch.timestamps_ms_R
    result = batch.timestamps_ms_R.copy()
    result[np.fromiter(times_ms.keys(), np.int64)] = np.fromiter(times_ms.values(), np.int64)
    return result
