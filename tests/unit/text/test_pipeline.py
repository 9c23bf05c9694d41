"""The pipeline on values good and bad: texts, rows, event times, labels, tallies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from streamfreq.config import TextConfig, ValueConfig
from streamfreq.errors import ConfigError
from streamfreq.records import NO_TIMESTAMP, RecordBatch, TopicPartition
from streamfreq.text import BadValue, PreparedBatch, TextPipeline


def batch_of(
    values: Sequence[bytes | None], timestamps: Sequence[int] | None = None
) -> RecordBatch:
    count = len(values)
    return RecordBatch(
        TopicPartition("t", 0),
        np.arange(count, dtype=np.int64),
        np.array(range(1000, 1000 + count) if timestamps is None else timestamps, np.int64),
        list(values),
        count,
    )


def prepare(
    values: Sequence[bytes | None],
    timestamps: Sequence[int] | None = None,
    text: TextConfig | None = None,
    **value: Any,
) -> PreparedBatch:
    pipeline = TextPipeline(ValueConfig(**value), text or TextConfig())
    return pipeline.prepare(batch_of(values, timestamps))


def kinds(prepared: PreparedBatch) -> list[tuple[int, str, str]]:
    return [(bad.row, bad.kind, bad.policy) for bad in prepared.bad]


def test_text_rows_times_and_labels() -> None:
    prepared = prepare(
        [b" one ", None, b"", b"two", b"\x00 \t", b"x" * 11, b"\xef\xbb\xbfthree", b"\xef\xbb\xbf"],
        [5, 6, 7, NO_TIMESTAMP, 9, 10, 11, 12],
        max_record_bytes=10,
        on_bad="stop",
    )
    assert prepared.texts == ["one", "two", "three"]
    assert prepared.rows_R.tolist() == [0, 3, 6]
    assert prepared.event_times_ms_R.tolist() == [5, NO_TIMESTAMP, 11]
    assert prepared.rows_R.dtype == prepared.event_times_ms_R.dtype == np.int64
    assert kinds(prepared) == [
        (1, "null", "skip"),
        (2, "empty", "skip"),
        (4, "empty", "skip"),
        (5, "too_large", "stop"),
        (7, "empty", "skip"),
    ]
    assert prepared.tallies == {"null": 1, "empty": 3, "too_large": 1}
    assert len(prepared) == 3


def test_an_empty_batch() -> None:
    prepared = prepare([])
    assert (prepared.texts, prepared.bad, prepared.tallies) == ([], (), {})
    assert prepared.rows_R.shape == prepared.event_times_ms_R.shape == (0,)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"a\xffb", "a\ufffdb"),
        (b"a\xe4\xb8", "a\ufffd"),  # a truncated sequence is one maximal subpart
        (b"\xe4\xb8\xf0\x9f\x98!", "\ufffd\ufffd!"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),  # a surrogate is never well-formed
        (b"\xc0\xaf", "\ufffd\ufffd"),
        (b"\xef\xbb\xbf\xff", "\ufffd"),
    ],
)
def test_invalid_utf8_is_replaced_by_maximal_subparts(value: bytes, expected: str) -> None:
    prepared = prepare([value, b"good"])
    assert prepared.texts == [expected, "good"]
    assert prepared.tallies == {"replaced_utf8": 1}
    in_json = prepare([b'{"text": "' + value.removeprefix(b"\xef\xbb\xbf") + b'"}'], format="json")
    assert in_json.texts == [expected]
    assert in_json.tallies == {"replaced_utf8": 1}


@pytest.mark.parametrize("policy", ["skip", "dead-letter", "stop"])
@pytest.mark.parametrize("value", [b"a\xffb", b'{"text": "good", "other": "\xff"}'])
def test_invalid_utf8_by_policy(policy: str, value: bytes) -> None:
    prepared = prepare(
        [value],
        format="json" if value[:1] == b"{" else "text",
        on_invalid_utf8=policy,
        dead_letter_file="bad.jsonl",
    )
    assert prepared.texts == []
    assert prepared.bad == (BadValue(0, "invalid_utf8", policy),)
    assert prepared.tallies == {"invalid_utf8": 1}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"not json", "not_json"),
        (b"{", "not_json"),
        (b'{"text": "a"} x', "not_json"),
        (b'{"text": "a",}', "not_json"),
        (b" ", "not_json"),
        (b"\xff", "not_json"),
        (b"[" * 100_000, "not_json"),
        (b'{"text": "a", "deep": ' + b"[" * 5000 + b"]" * 5000 + b"}", "not_json"),
        (b'{"text": "a", "deep": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001, "not_json"),
        (b'{"text": "a", "big": ' + b"9" * 5000 + b"}", "not_json"),
        (b"null", "no_text_field"),
        (b"[]", "no_text_field"),
        (b'"text"', "no_text_field"),
        (b"{}", "no_text_field"),
        (b'{"text": 1}', "no_text_field"),
        (b'{"text": null}', "no_text_field"),
        (b'{"text": "a", "text": 2}', "no_text_field"),
        (b'{"text": ""}', "empty"),
        (b'{"text": "\\u0000"}', "empty"),
        (b"\xef\xbb\xbf", "empty"),
    ],
)
def test_bad_json_is_labelled(value: bytes, kind: str) -> None:
    prepared = prepare(
        [b'{"text": "before"}', value, b'{"text": "after"}'], format="json", on_bad="stop"
    )
    assert prepared.texts == ["before", "after"]
    assert kinds(prepared) == [(1, kind, "skip" if kind == "empty" else "stop")]
    assert prepared.tallies == {kind: 1}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"text": "a", "text": "last wins"}', "last wins"),
        (b'\xef\xbb\xbf{"text": "bom"}', "bom"),
        (b'{"text": "\\ufeffbom inside"}', "bom inside"),
        (b'{"text": "nan", "x": NaN, "y": -Infinity, "z": 1e999}', "nan"),
        (b'{"text": "big", "x": ' + b"9" * 400 + b"}", "big"),
        (b'{"text": "nested", "x": ' + b"[" * 150 + b"]" * 150 + b"}", "nested"),
        (b'{"text": "\\ud83d\\ude00"}', "😀"),
        ('{"text": "中文 😀"}'.encode(), "中文 😀"),
    ],
)
def test_good_json(value: bytes, expected: str) -> None:
    prepared = prepare([value], format="json")
    assert prepared.texts == [expected]
    assert prepared.tallies == {}


@pytest.mark.parametrize(
    ("escaped", "expected"),
    [
        (r"a\ud800b", "a\ufffdb"),
        (r"\udc00\ud800", "\ufffd\ufffd"),
        (r"\ud800\ud83d\ude00\uDFFF", "\ufffd😀\ufffd"),
        (r"\\ud800 \ud800", "\\ud800 \ufffd"),
        (r"\ud800\u0041", "\ufffdA"),
        (r"\"\ud800\"", '"\ufffd"'),
    ],
)
def test_lone_surrogates_become_replacement_characters(escaped: str, expected: str) -> None:
    value = f'{{"text": "{escaped}"}}'.encode()
    prepared = prepare([value], format="json", on_invalid_utf8="stop")
    assert prepared.texts == [expected]
    assert prepared.tallies == {"replaced_surrogate": 1}


@pytest.mark.parametrize(
    ("path", "document", "expected"),
    [
        ("article.body", {"article": {"body": "x"}}, "x"),
        ("article.body", {"article.body": "literal", "article": {"body": "x"}}, "literal"),
        ("a.b.c", {"a.b": {"c": "x"}}, "x"),
        ("a.b.c", {"a": {"b.c": "x"}}, "x"),
        ("a.b.c", {"a.b": {"d": "y"}, "a": {"b": {"c": "x"}}}, "x"),
        ("a.b", {"a": "no object"}, None),
        ("a.b", {"a": {"c": "x"}}, None),
        ("a.b", {"a": ["b"]}, None),
        ("a.b", {"a.b": 1, "a": {"b": "x"}}, None),
    ],
)
def test_dotted_paths(path: str, document: dict[str, Any], expected: str | None) -> None:
    prepared = prepare([json.dumps(document).encode()], format="json", text_field=path)
    assert prepared.texts == ([] if expected is None else [expected])
    assert prepared.tallies == ({"no_text_field": 1} if expected is None else {})


def test_event_times_from_the_field_or_the_record() -> None:
    documents = [
        {"text": "a", "meta": {"at": "2020-11-06T18:10:51Z"}},
        {"text": "b", "meta": {"at": "bad"}},
        {"text": "c"},
        {"text": "", "meta": {"at": "bad"}},
        {"meta": {"at": "bad"}},
        {"text": "d", "meta": {"at": "2020-11-06"}},
    ]
    prepared = prepare(
        [json.dumps(document).encode() for document in documents],
        [1, 2, NO_TIMESTAMP, 4, 5, 6],
        format="json",
        time_field="meta.at",
        time_unit="iso",
    )
    assert prepared.texts == ["a", "b", "c", "d"]
    assert prepared.event_times_ms_R.tolist() == [1604686251000, 2, NO_TIMESTAMP, 1604620800000]
    assert prepared.tallies == {"bad_time": 2, "empty": 1, "no_text_field": 1}


def test_the_batch_itself_stays_as_it_is() -> None:
    batch = batch_of([b'{"text": "a", "at": 5}'], [7])
    value = ValueConfig(format="json", time_field="at")
    prepared = TextPipeline(value, TextConfig()).prepare(batch)
    assert prepared.event_times_ms_R.tolist() == [5]
    assert batch.timestamps_ms_R.tolist() == [7]


def test_masks_come_after_cleaning() -> None:
    text = TextConfig(mask=["email", "ip"], unescape_html=True, lowercase=True)
    prepared = prepare([b"Mail  Joe&#64;Example.COM from 10.0.0.1"], text=text)
    assert prepared.texts == ["mail [email] from [ip]"]


def test_an_unknown_phone_region_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"text\.phone_regions: 'XX'"):
        TextPipeline(ValueConfig(), TextConfig(mask=["phone"], phone_regions=["US", "XX"]))
    TextPipeline(ValueConfig(), TextConfig(mask=["email"], phone_regions=["XX"]))
