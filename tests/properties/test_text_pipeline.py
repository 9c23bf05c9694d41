"""Laws of the pipeline: no value makes it raise, every record is accounted for."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streamfreq.config import TextConfig, ValueConfig
from streamfreq.records import RecordBatch, TopicPartition
from streamfreq.text import TextPipeline

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["text", "a", "at", "text.a"]), inner, max_size=4)
    ),
    max_leaves=8,
)
VALUES = (
    st.none()
    | st.binary(max_size=40)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.text(alphabet=r'{}":,\ud8f0text 1', max_size=30).map(str.encode)
    | st.tuples(st.sampled_from([b'{"text": "', b"{"]), st.binary(max_size=12)).map(b"".join)
    | st.text(alphabet="\\ud8c0F", max_size=20).map(lambda s: f'{{"text": "{s}"}}'.encode())
)
PIPELINES = [
    TextPipeline(
        ValueConfig(
            format=form,
            text_field=field,
            time_field=time,
            time_unit=unit,
            on_invalid_utf8=policy,
            max_record_bytes=36,
        ),
        TextConfig(unescape_html=True, lowercase=True),
    )
    for form in ("text", "json")
    for field in ("text", "text.a")
    for time, unit in (("", "ms"), ("at", "s"), ("at", "iso"))
    for policy in ("replace", "stop")
]


@given(st.lists(VALUES, max_size=8))
@settings(deadline=None, max_examples=200)
def test_every_record_is_used_or_labelled(values: list[bytes | None]) -> None:
    count = len(values)
    timestamps = np.arange(count, dtype=np.int64) - 1
    batch = RecordBatch(TopicPartition("t", 0), np.arange(count), timestamps, values, count)
    for pipeline in PIPELINES:
        prepared = pipeline.prepare(batch)
        bad_rows = [bad.row for bad in prepared.bad]
        assert bad_rows == sorted(bad_rows)
        assert sorted([*prepared.rows_R.tolist(), *bad_rows]) == list(range(count))
        assert len(prepared.texts) == len(prepared.rows_R) == len(prepared.event_times_ms_R)
        assert (prepared.event_times_ms_R >= -1).all()
        for text in prepared.texts:
            assert text
            text.encode("utf-8")
        used = ("replaced_utf8", "replaced_surrogate", "bad_time")
        labelled = sum(n for kind, n in prepared.tallies.items() if kind not in used)
        assert labelled == len(prepared.bad)


@given(st.lists(VALUES, max_size=8), st.integers(0, 8))
@settings(deadline=None)
def test_batch_boundaries_do_not_matter(values: list[bytes | None], cut: int) -> None:
    pipeline = PIPELINES[-1]

    def texts(part: list[bytes | None]) -> list[str]:
        count = len(part)
        zeros = np.zeros(count, np.int64)
        return pipeline.prepare(
            RecordBatch(TopicPartition("t", 0), np.arange(count), zeros, part, count)
        ).texts

    assert texts(values) == texts(values[:cut]) + texts(values[cut:])


@given(st.text())
@settings(deadline=None)
def test_valid_text_is_read_as_it_is(text: str) -> None:
    off = TextConfig(normalize="none", strip_control=False, collapse_whitespace=False)
    expected = text.removeprefix("\ufeff")
    plain, document = text.encode(), json.dumps({"text": text}).encode()
    for form, value in (("text", plain), ("json", document)):
        pipeline = TextPipeline(ValueConfig(format=form), off)
        batch = RecordBatch(TopicPartition("t", 0), np.arange(1), np.zeros(1, np.int64), [value], 1)
        assert pipeline.prepare(batch).texts == ([expected] if expected else [])
