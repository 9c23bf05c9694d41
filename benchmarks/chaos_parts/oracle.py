"""What the counts have to be: read back from the topics, by the plain libraries alone.

Nothing of streamfreq counts here: kafka-python reads, json decodes, `tokenizers` encodes, numpy
adds. Shape legend: R records, N tokens, D distinct tokens of each record, H horizons, V vocabulary.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from streamfreq.codec import Snapshot
from streamfreq.records import TopicPartition
from tests.integration.reference import reference_encoder
from tests.services.kafka import KafkaBroker


@dataclass(frozen=True)
class Log:
    """The usable records of one partition, in offset order, as columns."""

    offsets_R: np.ndarray
    times_ms_R: np.ndarray
    ids: list[np.ndarray] = field(repr=False)

    def below(self, offset: int) -> slice:
        """The records with an offset below this one."""
        return slice(0, int(np.searchsorted(self.offsets_R, offset)))


@dataclass(frozen=True)
class Difference:
    """How far a snapshot is from what it has to be."""

    counts: float
    decayed_relative: float


class Oracle:
    """Knows every record of the topics, and compares snapshots with them."""

    def __init__(self, broker: KafkaBroker, topics: Mapping[str, int], tokenizer: Path) -> None:
        encode = reference_encoder(tokenizer)
        self.logs: dict[TopicPartition, Log] = {}
        for topic, partitions in topics.items():
            rows: dict[int, list[Any]] = {number: [] for number in range(partitions)}
            for record in broker.read_all(topic):
                value = _usable(record.value)
                if value is not None:
                    rows[record.partition].append((record.offset, value["ts"], value["text"]))
            for number, kept in rows.items():
                ids = encode([text for _, _, text in kept])
                self.logs[TopicPartition(topic, number)] = Log(
                    np.array([offset for offset, _, _ in kept], np.int64),
                    np.array([time_ms for _, time_ms, _ in kept], np.int64),
                    [np.array(one, np.int64) for one in ids],
                )
        self.records = sum(len(log.ids) for log in self.logs.values())
        self.tokens = sum(len(one) for log in self.logs.values() for one in log.ids)

    def compare(self, snapshot: Snapshot, *, decayed: bool) -> Difference:
        """The snapshot against exactly the records below its offsets, without its gaps.

        Sums of the absolute differences of the plain counts, document counts and totals, and the
        largest relative error of the decayed ones (0 unless `decayed`). A snapshot without document
        counts is infinitely wrong: the trial's configuration keeps them.
        """
        if snapshot.documents_HV is None:
            return Difference(math.inf, math.inf)
        parts = [
            (log, log.below(snapshot.offsets.get(partition, 0)))
            for partition, log in self.logs.items()
        ]
        for gap in snapshot.gaps:
            log = self.logs[gap.partition]
            if np.any((log.offsets_R >= gap.first) & (log.offsets_R < gap.last)):
                return Difference(math.inf, math.inf)
        ids = [one for log, rows in parts for one in log.ids[rows]]
        times_ms_R = np.concatenate([log.times_ms_R[rows] for log, rows in parts])
        tables = [
            (ids, snapshot.counts_HV),
            ([np.unique(one) for one in ids], snapshot.documents_HV),
            ([np.zeros(len(one), np.int64) for one in ids], snapshot.tokens_H[:, None]),
            ([np.zeros(1, np.int64) for _ in ids], snapshot.records_H[:, None]),
        ]
        counts, worst = 0.0, 0.0
        for occurrences, table_HV in tables:
            for h, half_life in enumerate(snapshot.half_lives_seconds):
                if not math.isinf(half_life) and not decayed:
                    continue
                ages_R = (snapshot.as_of_ms - times_ms_R) / 1000 / half_life
                expected_V = _sums(occurrences, np.exp2(-ages_R), table_HV.shape[1])
                if math.isinf(half_life):
                    counts += float(np.abs(table_HV[h] - expected_V).sum())
                else:
                    worst = max(worst, _relative(table_HV[h], expected_V))
        return Difference(counts, worst)


def _sums(ids: list[np.ndarray], weights_R: np.ndarray, vocab_size: int) -> np.ndarray:
    if not ids:
        return np.zeros(vocab_size)
    lengths_R = np.array([len(one) for one in ids])
    return np.bincount(
        np.concatenate(ids), weights=np.repeat(weights_R, lengths_R), minlength=vocab_size
    )


def _relative(actual_V: np.ndarray, expected_V: np.ndarray) -> float:
    """The largest relative error, down to where float64 itself ends."""
    some_V = (expected_V > 1e-280) | (actual_V > 1e-280)
    if not some_V.any():
        return 0.0
    actual_V, expected_V = actual_V[some_V], expected_V[some_V]
    return float(np.max(np.abs(actual_V - expected_V) / np.maximum(actual_V, expected_V)))


def _usable(value: bytes | None) -> dict[str, Any] | None:
    if not value:
        return None
    try:
        found = json.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("text") else None
