"""From records to tokens: decode, clean, mask, encode, with bad and poison records set aside.

Shape legend: R records, N tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from streamfreq.records import BoolArray, Int64Array, RecordBatch, TokenBatch
from streamfreq.text import BadValue, PreparedBatch, TextPipeline
from streamfreq.tokenization.base import Tokenizer
from streamfreq.tokenization.isolation import encode_isolating

POISON = "poison"
"""Kind of a record on which the tokenizer itself fails."""


@dataclass(frozen=True, slots=True)
class TokenizedBatch:
    """The usable records of `batch`, as tokens, and what became of the others.

    `tokens` holds one entry for each of `event_times_ms_R`. `bad` is in row order; a row whose
    policy is `stop` ends the batch: nothing behind it is in `tokens`, and `batch` ends before it.
    """

    batch: RecordBatch
    tokens: TokenBatch
    event_times_ms_R: Int64Array
    bad: tuple[BadValue, ...]
    tallies: dict[str, int] = field(default_factory=dict)

    @property
    def stopped_by(self) -> BadValue | None:
        """The bad record at which the policy says stop."""
        return next((bad for bad in self.bad if bad.policy == "stop"), None)


class Tokenization:
    """Texts and tokens of record batches; stateless between calls but for the engine's caches."""

    def __init__(self, text: TextPipeline, tokenizer: Tokenizer, on_poison: str) -> None:
        self._text = text
        self._tokenizer = tokenizer
        self._on_poison = on_poison

    @property
    def ids_per_token(self) -> int:
        """How many ids stand for one token."""
        return self._tokenizer.ids_per_token

    def run(self, batches: Sequence[RecordBatch]) -> list[TokenizedBatch]:
        """Tokenize batches of several partitions with one call of the engine."""
        prepared = [self._text.prepare(batch) for batch in batches]
        texts = [text for item in prepared for text in item.texts]
        tokens, usable_R = encode_isolating(self._tokenizer, texts)
        results = []
        first = 0
        for batch, item in zip(batches, prepared, strict=True):
            last = first + len(item.texts)
            results.append(
                self._assemble(batch, item, tokens.slice(first, last), usable_R[first:last])
            )
            first = last
        return results

    def _assemble(
        self, batch: RecordBatch, item: PreparedBatch, tokens: TokenBatch, usable_R: BoolArray
    ) -> TokenizedBatch:
        tallies = Counter(item.tallies)
        poison = [BadValue(int(row), POISON, self._on_poison) for row in item.rows_R[~usable_R]]
        if poison:
            tallies[POISON] += len(poison)
        bad = tuple(sorted((*item.bad, *poison), key=lambda value: value.row))
        keep_R = usable_R
        stop = next((value.row for value in bad if value.policy == "stop"), None)
        if stop is not None:
            keep_R = usable_R & (item.rows_R < stop)
            bad = tuple(value for value in bad if value.row <= stop)
            batch = batch.before(stop)
        return TokenizedBatch(
            batch, tokens.select(keep_R), item.event_times_ms_R[keep_R], bad, dict(tallies)
        )
