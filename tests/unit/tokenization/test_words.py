from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamfreq.config import TokenizerConfig
from streamfreq.errors import DataRefused
from streamfreq.tokenization.words import (
    BucketHash,
    WordMemory,
    WordsTokenizer,
    estimate,
    load_words,
)
from tests.unit.tokenization import files


def words(**changes: Any) -> WordsTokenizer:
    return load_words(TokenizerConfig(path="words", words_buckets_log2=10, **changes))


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_each_word_has_one_id_in_every_row(rows: int) -> None:
    tokenizer = words(words_rows=rows)
    assert tokenizer.ids_per_token == rows
    assert tokenizer.vocab_size == rows * 1024
    batch = tokenizer.encode_batch(["the dog", "", "深度学"])
    assert batch.lengths_R.tolist() == [2 * rows, 0, 5 * rows]
    ids_WD = batch.ids_N.reshape(-1, rows)
    assert (ids_WD // 1024 == np.arange(rows)).all()
    np.testing.assert_array_equal(ids_WD[:2], tokenizer.word_ids(["the", "dog"]))


@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_ids_are_the_same_in_every_process(hash_seed: str) -> None:
    program = (
        "import json, sys; from streamfreq.config import TokenizerConfig;"
        "from streamfreq.tokenization import load_tokenizer;"
        "t = load_tokenizer(TokenizerConfig(path='words', words_rows=3, words_seed=5));"
        "ids = t.encode_batch(json.loads(sys.argv[1])).ids_N.tolist();"
        "print(json.dumps([t.fingerprint, ids]))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, json.dumps(files.TEXTS)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    here = load_words(TokenizerConfig(path="words", words_rows=3, words_seed=5))
    fingerprint, ids = json.loads(result.stdout)
    assert fingerprint == here.fingerprint
    assert ids == here.encode_batch(files.TEXTS).ids_N.tolist()


def test_the_hash_is_pinned() -> None:
    """Another hash would make every stored count meaningless."""
    ids = BucketHash(17, 4, seed=0).ids
    assert ids("the") == PINNED["the"]
    assert ids("深度") == PINNED["深度"]


PINNED = {"the": [73952, 236569, 294972, 477485], "深度": [35015, 140702, 363407, 435233]}


@pytest.mark.parametrize(
    "change", [{"words_seed": 1}, {"words_rows": 2}, {"words_buckets_log2": 11}]
)
def test_every_parameter_makes_another_vocabulary(change: dict[str, int]) -> None:
    one = TokenizerConfig(path="words", words_buckets_log2=10)
    assert load_words(one).fingerprint == words().fingerprint
    assert load_words(one.model_copy(update=change)).fingerprint != words().fingerprint
    for label in ({"words_labels": 5}, {"max_cache_mb": 16}):
        assert words(**label).fingerprint == words().fingerprint


def test_seeds_and_rows_hash_independently() -> None:
    names = [f"word{n}" for n in range(4000)]
    tokenizers = [words(words_rows=2, words_seed=seed) for seed in (0, 1)]
    columns = [tokenizer.word_ids(names) % 1024 for tokenizer in tokenizers]
    pairs = [columns[0][:, 0], columns[0][:, 1], columns[1][:, 0]]
    for first in range(3):
        spread = np.bincount(pairs[first], minlength=1024)
        assert spread.max() < 20
        for second in range(first):
            assert (pairs[first] == pairs[second]).mean() < 0.01


@settings(max_examples=30)
@given(st.lists(st.sampled_from([f"w{n}" for n in range(400)]), min_size=1, max_size=600))
def test_count_min_is_never_below_the_true_count(names: list[str]) -> None:
    tokenizer = load_words(TokenizerConfig(path="words", words_buckets_log2=8, words_rows=4))
    batch = tokenizer.encode_batch([" ".join(names)])
    counts = np.bincount(batch.ids_N, minlength=tokenizer.vocab_size).astype(np.float64)
    true = Counter(names)
    distinct = list(true)
    estimated = estimate(np.stack([counts, 2 * counts]), tokenizer.word_ids(distinct))
    assert estimated.shape == (2, len(distinct))
    exact = np.array([true[name] for name in distinct])
    assert (estimated[0] >= exact).all()
    np.testing.assert_array_equal(estimated[1], 2 * estimated[0])
    one_row = counts[tokenizer.word_ids(distinct)[:, 0]]
    assert (estimated[0] <= one_row).all()


def test_the_heaviest_word_names_its_bucket() -> None:
    tokenizer = load_words(TokenizerConfig(path="words", words_buckets_log2=8, words_labels=50))
    texts = [" ".join(f"w{n}" for n in range(400)), "common " * 30, "second " * 20]
    tokenizer.encode_batch(texts)
    labels = tokenizer.labels()
    common, second = tokenizer.word_ids(["common", "second"])[:, 0].tolist()
    assert labels[common] == "common"
    assert labels[second] == "second"
    assert len(labels) <= 50
    assert tokenizer.token_text(common) == "common"
    unnamed = next(n for n in range(256) if n not in labels)
    assert tokenizer.token_text(unnamed) == f"#{unnamed}"
    for token_id, word in labels.items():
        assert token_id in tokenizer.word_ids([word])


def test_labels_can_be_switched_off() -> None:
    tokenizer = words(words_labels=0)
    tokenizer.encode_batch(files.TEXTS)
    assert tokenizer.labels() == {}
    assert tokenizer.token_text(3) == "#3"


def memory(capacity: int, keep: int) -> WordMemory:
    return WordMemory(BucketHash(16, 2, 0), 2, capacity, keep)


def test_memory_is_bounded_and_keeps_the_heaviest() -> None:
    kept = memory(capacity=100, keep=10)
    hash_of = BucketHash(16, 2, 0).ids
    for batch in range(50):
        names = [f"rare{batch}-{n}" for n in range(60)] + [f"heavy{n}" for n in range(10)] * 5
        ids_WD = kept.count(names)
        assert ids_WD.tolist() == [hash_of(name) for name in names]
        kept.make_room()
        assert len(kept) <= 100
        assert len(kept._ids_WD) < 1_000
    assert set(kept.names().values()) == {f"heavy{n}" for n in range(10)}


def test_names_follow_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamfreq.tokenization.words.HALVE_AFTER_WORDS", 100)
    kept = memory(capacity=1_000, keep=1)
    kept.count(["old"] * 1_000)
    kept.make_room()
    for _ in range(20):
        kept.count(["new"] * 50)
        kept.make_room()
    assert set(kept.names().values()) == {"new"}


def test_a_text_that_is_no_unicode_is_refused_and_forgotten() -> None:
    tokenizer = words(words_rows=2)
    before = tokenizer.encode_batch(files.TEXTS).ids_N.tolist()
    hash_of = BucketHash(10, 2, 0)
    with pytest.raises(UnicodeEncodeError):
        hash_of.ids("a\ud800")
    kept = memory(capacity=10, keep=5)
    with pytest.raises(UnicodeEncodeError):
        kept.count(["first", "a\ud800", "never"])
    assert kept.count(["first", "second"]).shape == (2, 2)
    assert kept.count(["second"]).tolist() == [BucketHash(16, 2, 0).ids("second")]
    with suppress(DataRefused):
        tokenizer.encode_batch(["fine new words a\ud800b"])
    assert tokenizer.encode_batch(files.TEXTS).ids_N.tolist() == before
