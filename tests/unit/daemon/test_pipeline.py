"""Laws of tokenization in the daemon: bad and poison records are set aside alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfreq.config import TextConfig, ValueConfig
from streamfreq.daemon.pipeline import POISON, Tokenization
from streamfreq.records import RecordBatch, TokenBatch, TopicPartition
from streamfreq.text import TextPipeline

TP = TopicPartition("news", 0)


class Letters:
    """A tokenizer of one id per letter that fails on every text with an exclamation mark."""

    name = engine = fingerprint = "letters"
    vocab_size = 128
    ids_per_token = 1

    def __init__(self) -> None:
        self.calls = 0

    def encode_batch(self, texts: Sequence[str]) -> TokenBatch:
        self.calls += 1
        if any("!" in text for text in texts):
            raise RuntimeError("boom")
        ids = np.frombuffer("".join(texts).encode("ascii"), np.uint8).astype(np.int32)
        return TokenBatch(ids, np.array([len(text) for text in texts], np.int64))

    def token_text(self, token_id: int) -> str:
        return chr(token_id)

    def labels(self) -> dict[int, str]:
        return {}


def batch(values: Sequence[bytes | None], first: int = 10) -> RecordBatch:
    return RecordBatch(
        TP,
        np.arange(first, first + len(values), dtype=np.int64),
        np.full(len(values), 1_000, np.int64),
        list(values),
        first + len(values),
    )


def tokenization(policy: str = "skip", **value: object) -> tuple[Tokenization, Letters]:
    letters = Letters()
    config = ValueConfig(on_bad=policy, dead_letter_file="x", **value)  # type: ignore[arg-type]
    return Tokenization(TextPipeline(config, TextConfig()), letters, policy), letters


def test_one_poison_record_costs_no_other() -> None:
    run, letters = tokenization()
    values = [f"text {n}".encode() for n in range(100)]
    values[37] = b"poison!"
    (result,) = run.run([batch(values)])
    assert len(result.tokens) == 99
    assert [(bad.row, bad.kind, bad.policy) for bad in result.bad] == [(37, POISON, "skip")]
    assert result.tallies[POISON] == 1
    assert letters.calls < 20


def test_batches_of_several_partitions_stay_apart() -> None:
    run, _ = tokenization()
    first, second = run.run([batch([b"ab", b"c"]), batch([b"", b"def"])])
    assert first.tokens.ids_N.tolist() == [97, 98, 99]
    assert second.tokens.ids_N.tolist() == [100, 101, 102]
    assert second.bad[0].kind == "empty"


@pytest.mark.parametrize(
    ("bad_value", "kind"), [(b"{", "not_json"), (b'{"a": 1}', "no_text_field")]
)
def test_stop_ends_the_batch_before_the_bad_record(bad_value: bytes, kind: str) -> None:
    run, _ = tokenization("stop", format="json")
    values = [b'{"text": "a"}', bad_value, b'{"text": "b"}', b"["]
    (result,) = run.run([batch(values)])
    assert result.tokens.ids_N.tolist() == [97]
    assert result.batch.next_offset == 11
    assert result.stopped_by is not None
    assert (result.stopped_by.row, result.stopped_by.kind) == (1, kind)


def test_stop_on_poison_keeps_what_is_in_front_of_it() -> None:
    run, _ = tokenization("stop")
    (result,) = run.run([batch([b"ok", b"bad!", b"ok"])])
    assert result.tokens.lengths_R.tolist() == [2]
    assert result.batch.next_offset == 11


@given(
    st.lists(
        st.one_of(st.none(), st.binary(max_size=6), st.sampled_from([b"a!", b"bb", b"c c"])),
        max_size=30,
    )
)
def test_every_record_is_either_tokens_or_bad(values: list[bytes | None]) -> None:
    run, _ = tokenization()
    ascii_only = [None if v is None else bytes(b & 0x7F for b in v) for v in values]
    (result,) = run.run([batch(ascii_only)])
    assert len(result.tokens) + len(result.bad) == len(ascii_only)
    assert len(result.event_times_ms_R) == len(result.tokens)
