"""The laws on real text: a sample of each stream."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from streamfreq.config import TextConfig, ValueConfig
from streamfreq.records import RecordBatch, TopicPartition
from streamfreq.text import Cleaner, Masker, TextPipeline
from streamfreq.text.masking import PLACEHOLDERS

pytestmark = pytest.mark.shared_data

STREAMS = {"hn_frontpage": 40, "topnews_en": 120, "zhihu_hot": 120, "security_advisories": 10}
"""Every so manieth line of each is taken."""


@pytest.fixture(scope="module", params=STREAMS)
def lines(request: pytest.FixtureRequest, shared_dir: Path) -> list[bytes]:
    with gzip.open(shared_dir / "data" / f"{request.param}.jsonl.gz") as file:
        return list(itertools.islice(file, 0, None, STREAMS[request.param]))


def batch_of(lines: list[bytes]) -> RecordBatch:
    count = len(lines)
    zeros = np.zeros(count, np.int64)
    return RecordBatch(TopicPartition("t", 0), np.arange(count), zeros, list(lines), count)


def test_every_line_is_used_with_its_time(lines: list[bytes]) -> None:
    value = ValueConfig(format="json", time_field="ts")
    prepared = TextPipeline(value, TextConfig()).prepare(batch_of(lines))
    assert prepared.bad == ()
    assert prepared.tallies == {}
    assert prepared.event_times_ms_R.tolist() == [json.loads(line)["ts"] for line in lines]


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_clean_and_mask_are_idempotent(lines: list[bytes], form: str, lowercase: bool) -> None:
    options = TextConfig(
        normalize=form, lowercase=lowercase, unescape_html=True, mask=list(PLACEHOLDERS)
    )
    prepared = TextPipeline(ValueConfig(format="json"), options).prepare(batch_of(lines)).texts
    assert Cleaner(options).clean_batch(prepared) == prepared
    masker = Masker(options)
    assert masker.mask_batch(prepared) == prepared
    assert not [text for text in prepared for d in masker.detectors.values() if d.find(text)]


@pytest.mark.parametrize("kind", ["email", "iban", "cn_id", "card", "phone"])
def test_few_false_positives(lines: list[bytes], kind: str) -> None:
    # Headlines, questions and advisories hold practically no personal numbers.
    texts = [json.loads(line)["text"] for line in lines]
    masked = Masker(TextConfig(mask=[kind])).mask_batch(texts)
    assert sum(PLACEHOLDERS[kind] in text for text in masked) <= len(texts) // 200
