from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import gigatoken
import numpy as np
import pytest

from streamfreq.config import TokenizerConfig
from streamfreq.errors import ConfigError, DataRefused
from streamfreq.records import TokenBatch
from streamfreq.tokenization.engines import (
    CHUNK_CHARACTERS,
    Engine,
    chunks,
    failures_as_data_refused,
    flatten,
)
from streamfreq.tokenization.gigatoken import GigatokenEngine, choose_engine, first_difference
from streamfreq.tokenization.heap import heap_in_use, return_free_pages
from tests.unit.tokenization import files

MB = 1 << 20


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], gigatoken.Tokenizer]:
    content = files.byte_level_bpe(tmp_path_factory.mktemp("bpe")).read_bytes()
    return lambda: gigatoken.Tokenizer.from_json(content)


class BytesEngine:
    """An engine of its own: the bytes of a text, or wrong ones for texts with `wrong` in them."""

    name = "bytes"

    def __init__(self, wrong: str = "", refused: str = "") -> None:
        self._wrong = wrong
        self._refused = refused

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        if self._refused and any(self._refused in text for text in texts):
            raise DataRefused("bytes could not encode a text")
        return flatten(
            [
                [byte ^ bool(self._wrong and self._wrong in text) for byte in text.encode()]
                for text in texts
            ]
        )


def new_words(seed: int, texts: int = 500) -> list[str]:
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz   ", np.uint8)
    content = np.random.default_rng(seed).choice(letters, size=(texts, 400))
    return [row.tobytes().decode() for row in content]


def test_memory_levels_off_on_ever_new_words(build: Callable[[], gigatoken.Tokenizer]) -> None:
    if heap_in_use() is None:
        pytest.skip("the heap can't be measured without glibc 2.33")

    def curve(engine: GigatokenEngine) -> list[int]:
        heap = []
        for seed in range(60):
            engine.encode(new_words(seed))
            heap.append(heap_in_use() or 0)
        return heap

    free = GigatokenEngine(build, 1 << 40, threads=1)
    grown = curve(free)
    del free
    return_free_pages()
    bounded = GigatokenEngine(build, 16 * MB, threads=1)
    levelled = curve(bounded)
    assert grown[-1] - grown[0] > 60 * MB
    assert bounded.rebuilds >= 2
    assert max(levelled) - min(levelled) < 40 * MB
    assert max(levelled[30:]) < max(levelled[:30]) + 4 * MB


def test_a_rebuilt_engine_gives_the_same_ids(build: Callable[[], gigatoken.Tokenizer]) -> None:
    engine = GigatokenEngine(build, 0, threads=1)
    before = engine.encode(files.TEXTS)
    for seed in range(40):
        engine.encode(new_words(seed, 200))
    assert engine.rebuilds >= 1
    np.testing.assert_array_equal(engine.encode(files.TEXTS).ids_N, before.ids_N)


def test_known_words_do_not_fill_the_caches(build: Callable[[], gigatoken.Tokenizer]) -> None:
    engine = GigatokenEngine(build, 16 * MB, threads=1)
    engine.encode(files.TEXTS)
    once = engine.cache_bytes
    texts = files.TEXTS * 100
    for _ in range(50):
        engine.encode(texts)
    assert engine.rebuilds == 0
    if heap_in_use() is not None:
        assert engine.cache_bytes < once + 8 * MB


def test_growth_is_charged_by_ids_where_the_heap_is_unknown(
    build: Callable[[], gigatoken.Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamfreq.tokenization.gigatoken.heap_in_use", lambda: None)
    engine = GigatokenEngine(build, 16 * MB, threads=1)
    ids = len(engine.encode(files.TEXTS).ids_N)
    assert engine.cache_bytes == 64 * ids
    for seed in range(12):
        engine.encode(new_words(seed))
    assert engine.rebuilds >= 1


def test_a_panic_costs_one_batch_and_no_more(build: Callable[[], gigatoken.Tokenizer]) -> None:
    class PanicException(BaseException):
        """Named as the class that PyO3 raises for a panic."""

    class Panicking:
        def encode_batch(self, texts: list[str], parallel: bool | None) -> object:
            raise PanicException("index out of bounds")

    built: list[object] = []

    def build_one_that_panics() -> gigatoken.Tokenizer:
        built.append(build() if built else Panicking())
        return built[-1]  # type: ignore[return-value]

    engine = GigatokenEngine(build_one_that_panics, 16 * MB)
    with pytest.raises(DataRefused, match="index out of bounds"):
        engine.encode(["poison"])
    assert len(engine.encode(files.TEXTS)) == len(files.TEXTS)
    assert len(built) == 2


def test_an_interrupt_is_no_failure_of_a_text() -> None:
    with pytest.raises(KeyboardInterrupt), failures_as_data_refused("x"):
        raise KeyboardInterrupt


def test_a_lone_surrogate_is_refused_and_forgotten(
    build: Callable[[], gigatoken.Tokenizer],
) -> None:
    engine = GigatokenEngine(build, 16 * MB)
    with pytest.raises(DataRefused):
        engine.encode(["fine", "a\ud800b"])
    assert len(engine.encode(["fine"])) == 1


def test_chunks_hold_every_text_once() -> None:
    texts = ["a" * (CHUNK_CHARACTERS // 2 - 1)] * 5 + ["b" * (2 * CHUNK_CHARACTERS)] + ["", "c"]
    parts = list(chunks(texts))
    assert [text for part in parts for text in part] == texts
    assert [len(part) for part in parts] == [2, 2, 1, 1, 2]
    assert list(chunks([])) == []


def test_the_self_check_finds_a_wrong_id() -> None:
    reference = BytesEngine()
    assert first_difference(reference, BytesEngine(), ["a", "b", ""]) is None
    assert first_difference(reference, BytesEngine(wrong="b"), ["a", "b", "bb"]) == "b"
    assert first_difference(reference, BytesEngine(refused="b"), ["a", "ab"]) == "ab"
    both = (BytesEngine(refused="b"), BytesEngine(refused="b"))
    assert first_difference(*both, ["a", "ab"]) is None


def test_an_engine_that_differs_is_not_used(
    build: Callable[[], gigatoken.Tokenizer], caplog: pytest.LogCaptureFixture
) -> None:
    reference: Engine = BytesEngine()
    with caplog.at_level(logging.INFO, "streamfreq.tokenization"):
        assert choose_engine(TokenizerConfig(path="mine"), reference, build) is reference
    assert "mine: bytes does the work" in caplog.text
    assert "self-check found other ids" in caplog.text
    with pytest.raises(ConfigError, match="gigatoken can't be used for mine: the self-check"):
        choose_engine(TokenizerConfig(path="mine", engine="gigatoken"), reference, build)
    unread = choose_engine(TokenizerConfig(path="mine", engine="reference"), reference, build)
    assert unread is reference
    with pytest.raises(ConfigError, match="does not read this format"):
        choose_engine(TokenizerConfig(path="mine", engine="gigatoken"), reference, None)


def test_gigatoken_that_is_not_installed_is_not_used() -> None:
    def build() -> gigatoken.Tokenizer:
        raise ImportError("No module named 'gigatoken'")

    reference = BytesEngine()
    assert choose_engine(TokenizerConfig(path="mine"), reference, build) is reference


def test_the_caches_are_kept_where_the_file_was(tmp_path: Path) -> None:
    from streamfreq.tokenization import load_tokenizer

    path = files.tiktoken_file(tmp_path / "cl100k_base.tiktoken")
    tokenizer = load_tokenizer(TokenizerConfig(path=str(path), max_cache_mb=16, threads=1))
    before = tokenizer.encode_batch(files.TEXTS)
    path.unlink()
    for seed in range(20):
        tokenizer.encode_batch(new_words(seed))
    np.testing.assert_array_equal(tokenizer.encode_batch(files.TEXTS).ids_N, before.ids_N)
