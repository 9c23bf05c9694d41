from __future__ import annotations

import doctest
import importlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfreq.tokenization import segmenting
from streamfreq.tokenization.segmenting import bigrams, split_words, words_with_bigrams


@pytest.mark.parametrize(
    "module", ["segmenting", "words", "subword", "fingerprints", "probes", "tiktoken"]
)
def test_the_examples_in_the_documentation_hold(module: str) -> None:
    loaded = importlib.import_module(f"streamfreq.tokenization.{module}")
    assert doctest.testmod(loaded).failed == 0


@given(st.text(st.sampled_from("abZ09_'.:,- \n!@"), max_size=40))
def test_ascii_text_is_cut_as_any_text(text: str) -> None:
    assert split_words(text) == segmenting._WORD.findall(text)


@given(st.text(max_size=60))
def test_words_are_pieces_of_the_text_in_order(text: str) -> None:
    position = 0
    for word in split_words(text):
        assert word
        position = text.index(word, position) + len(word)


@given(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=30))
def test_letters_and_digits_are_never_dropped(text: str) -> None:
    assert "".join(split_words(text)) == text


@given(st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), min_size=1, max_size=20))
def test_chinese_is_characters_and_pairs(run: str) -> None:
    assert split_words(run) == [run]
    words = bigrams(run)
    assert [word for word in words if len(word) == 1] == list(run)
    assert [word for word in words if len(word) == 2] == [a + b for a, b in pairwise(run)]
    assert words_with_bigrams(run) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("don't l’été rock'n'roll 'quoted'", ["don't", "l’été", "rock'n'roll", "quoted"]),
        ("3.14 1,000,000 v1.2 U.S. end.", ["3.14", "1,000,000", "v1.2", "U.S", "end"]),
        ("snake_case kebab-case a/b", ["snake_case", "kebab", "case", "a", "b"]),
        ("GPT4模型2023年", ["GPT4", "模型", "2023", "年"]),
        ("हिन्दी e\u0301x مُحَمَّد", ["हिन्दी", "e\u0301x", "مُحَمَّد"]),
        ("👍🏽👩\u200d👩\u200d👧!🇩🇪🇨🇳", ["👍🏽", "👩\u200d👩\u200d👧", "🇩🇪", "🇨🇳"]),
        ("... !? \t\n", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert split_words(text) == words


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:pkg_resources:UserWarning")
def test_jieba_cuts_by_its_dictionary() -> None:
    pytest.importorskip("jieba")
    segment = segmenting.jieba_segmenter()
    assert segment("我来到北京清华大学 AI's") == ["我", "来到", "北京", "清华大学", "AI's"]
