"""The full recount of files: the daemon's own steps, one batch after the other, without a store.

Shape legend: R records, H horizons, V vocabulary.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from streamfreq import __version__
from streamfreq.clock import Clock
from streamfreq.codec import Snapshot
from streamfreq.counting import DecayedCounts, EventTimes, decay_to, pick_device
from streamfreq.counting.counters import Counters
from streamfreq.daemon.pipeline import Tokenization, TokenizedBatch
from streamfreq.errors import BadRecord
from streamfreq.records import RecordBatch, TopicPartition
from streamfreq.text import TextPipeline
from streamfreq.weighting import WeightInputs, weigh

if TYPE_CHECKING:
    from streamfreq.config import Config, WeightsConfig
    from streamfreq.tokenization.base import Tokenizer


class Recount:
    """Counts the batches of files (each a partition of its own), from their first record on.

    Memory is that of one batch, the counters and the tokenizer. A record of bad input is left out
    and tallied, whatever its policy (nothing is put aside), unless the policy is `stop`.
    """

    def __init__(
        self,
        config: Config,
        half_lives_seconds: tuple[float, ...],
        tokenizer: Tokenizer,
        clock: Clock,
    ) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._clock = clock
        self._pipelines: dict[str, Tokenization] = {}
        self._event_times = EventTimes(config.counting)
        self._now_ms = clock.now_ms()
        self._watermarks_ms: dict[TopicPartition, int] = {}
        self._offsets: dict[TopicPartition, int] = {}
        self._counters = Counters(
            half_lives_seconds,
            tokenizer.vocab_size,
            documents=config.counting.documents,
            device=pick_device(config.counting.device),
            ids_per_token=tokenizer.ids_per_token,
        )
        self.tallies: Counter[str] = Counter()
        self.records = 0
        self.looks_like_json = False
        self.tokens = 0

    def add(self, batch: RecordBatch, value_format: str) -> None:
        """Count a batch whose values are `text` or `json`.

        Raises BadRecord for a bad record whose policy is `stop`.
        """
        if self.records == 0 and value_format == "text":
            self.looks_like_json = _is_json_object(batch)
        (result,) = self._pipeline(value_format).run([batch])
        self.tallies.update(result.tallies)
        _refuse_to_go_on(batch, result)
        partition = batch.partition
        watermark_ms = self._watermarks_ms.get(partition, -1)
        times = self._event_times.resolve(result.event_times_ms_R, watermark_ms, self._now_ms)
        self.tallies.update(times.tallies)
        self._offsets[partition] = batch.next_offset
        kept_ms_R = times.times_ms_R[times.keep_R]
        if len(kept_ms_R):
            self._watermarks_ms[partition] = max(watermark_ms, int(kept_ms_R.max()))
        tokens = result.tokens.select(times.keep_R)
        self._counters.update(tokens, kept_ms_R)
        self.records += len(tokens)
        self.tokens += len(tokens.ids_N) // self._tokenizer.ids_per_token

    def snapshot(self, as_of_ms: int | None, weights: Mapping[str, WeightsConfig]) -> Snapshot:
        """What is counted, decayed to `as_of_ms` (None: to the latest event time), and weighed.

        Raises UsageError for a time too long before the records.
        """
        state = self._counters.state()
        if as_of_ms is None:
            as_of_ms = state.watermark_ms if state.watermark_ms >= 0 else self._now_ms
        counts = decay_to(state, as_of_ms)
        return Snapshot(
            job=self._config.job,
            version=1,
            created_at_ms=self._clock.now_ms(),
            as_of_ms=as_of_ms,
            half_lives_seconds=counts.half_lives_seconds,
            counts_HV=counts.counts_HV,
            documents_HV=counts.documents_HV,
            tokens_H=counts.tokens_H,
            records_H=counts.records_H,
            offsets=dict(self._offsets),
            tokenizer_name=self._tokenizer.name,
            tokenizer_fingerprint=self._tokenizer.fingerprint,
            weights={name: weigh(item, _inputs(counts)) for name, item in weights.items()},
            schemes={name: item.model_dump() for name, item in weights.items()},
            labels=self._tokenizer.labels(),
            streamfreq_version=__version__,
        )

    def _pipeline(self, value_format: str) -> Tokenization:
        if value_format not in self._pipelines:
            value = self._config.value.model_copy(update={"format": value_format})
            text = TextPipeline(value, self._config.text)
            self._pipelines[value_format] = Tokenization(text, self._tokenizer, value.on_bad)
        return self._pipelines[value_format]


def bad_records(tallies: Mapping[str, int], kinds: Iterable[str] = ()) -> dict[str, int]:
    """The tallies above 0, without `kinds`, the most frequent first."""
    left_out = frozenset(kinds)
    items = [(kind, count) for kind, count in tallies.items() if count and kind not in left_out]
    return dict(sorted(items, key=lambda item: (-item[1], item[0])))


def _is_json_object(batch: RecordBatch) -> bool:
    """Whether the first line is one: then somebody most likely forgot to name the field."""
    first = next((value for value in batch.values if value), b"")
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _inputs(counts: DecayedCounts) -> WeightInputs:
    return WeightInputs(
        counts.half_lives_seconds,
        counts.counts_HV,
        counts.documents_HV,
        counts.tokens_H,
        counts.records_H,
    )


def _refuse_to_go_on(batch: RecordBatch, result: TokenizedBatch) -> None:
    stop = result.stopped_by
    if stop is not None:
        raise BadRecord(
            f"{batch.partition.topic} record {int(batch.offsets_R[stop.row])}: {stop.kind}, and "
            "the policy says stop; mend the file, or set value.on_bad to skip"
        )
