"""Text into words: runs of letters, marks and digits, close to the default rules of UAX #29.

A word is taken as it stands; case is the cleaning's business. What is no word (punctuation, most
symbols, whitespace) is dropped. Scripts written without spaces, other than Chinese, come out in
runs as long as they are written.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from itertools import chain, pairwise

import regex  # type: ignore[import-untyped]

from streamfreq.errors import ConfigError

Segmenter = Callable[[str], list[str]]
"""A text -> its words, in order; a pure function of the text."""

_WORD = regex.compile(
    r"""
      \p{Han}+                                            # Chinese: cut further below
    | [\p{L}\p{M}\p{N}\p{Pc}--\p{Han}]+                   # letters, marks, digits, _
      (?: (?<=\p{L}\p{M}*) ['’.·:] (?=[\p{L}--\p{Han}])   # don't, e.g, l’été  (WB6, WB7)
          [\p{L}\p{M}\p{N}\p{Pc}--\p{Han}]+
        | (?<=\p{N}) [.,'’] (?=\p{N})                     # 3.14, 1,000        (WB11, WB12)
          [\p{L}\p{M}\p{N}\p{Pc}--\p{Han}]+
      )*
    | \p{Extended_Pictographic} [\p{Emoji_Modifier}\uFE0F]?  # emoji, with skin tone and joiners
      (?: \u200D \p{Extended_Pictographic} [\p{Emoji_Modifier}\uFE0F]? )*
    | \p{Regional_Indicator}{2}                           # flags              (WB15)
    """,
    regex.VERBOSE | regex.VERSION1,
)
_ASCII_WORD = re.compile(
    r"\w+(?:(?:(?<=[A-Za-z])['.:](?=[A-Za-z])|(?<=[0-9])[.,'](?=[0-9]))\w+)*", re.ASCII
)
"""What _WORD comes to in ASCII text, at twice the speed."""

_HAN = regex.compile(r"\p{Han}")

RULES = 1
"""Version of these rules: other rules give other words."""


def split_words(text: str) -> list[str]:
    """The words of `text`, each run of Chinese characters as one.

    >>> split_words("Don't panic: 3.14 is π, naïve_x 深度学习AI模型!")
    ["Don't", 'panic', '3.14', 'is', 'π', 'naïve_x', '深度学习', 'AI', '模型']
    """
    if text.isascii():
        return _ASCII_WORD.findall(text)
    words: list[str] = _WORD.findall(text)
    return words


def bigrams(run: str) -> list[str]:
    """Single characters and overlapping pairs of a run of Chinese characters.

    >>> bigrams("深度学"), bigrams("好")
    (['深', '深度', '度', '度学', '学'], ['好'])
    """
    pairs = chain.from_iterable(zip(run, map("".join, pairwise(run)), strict=False))
    return [*pairs, run[-1]]


def words_with_bigrams(text: str) -> list[str]:
    """The words of `text`, Chinese as single characters and bigrams."""
    return _cut_chinese(text, bigrams)


def jieba_segmenter() -> Segmenter:
    """Words with Chinese cut by jieba's dictionary; raises ConfigError without the extra."""
    try:
        import jieba
    except ImportError as error:
        raise ConfigError(
            "tokenizer.words_segmenter: jieba is not installed;"
            ' run pip install "streamfreq[jieba]", or set bigrams'
        ) from error
    jieba.setLogLevel(logging.WARNING)
    cutter = jieba.Tokenizer()

    def segment(text: str) -> list[str]:
        return _cut_chinese(text, cutter.lcut)

    return segment


def jieba_version() -> str:
    """The version whose dictionary decides about the words."""
    from importlib.metadata import version

    return version("jieba")


def _cut_chinese(text: str, cut: Callable[[str], list[str]]) -> list[str]:
    words = split_words(text)
    if text.isascii():
        return words
    cut_words: list[str] = []
    for word in words:
        if _HAN.match(word) is not None:
            cut_words.extend(cut(word))
        else:
            cut_words.append(word)
    return cut_words
