"""What does the encoding: one small port, and the reference library of each format behind it.

Every engine turns texts into ids without special tokens, padding or truncation, in input order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import numpy as np

from streamfreq.errors import DataRefused
from streamfreq.records import TokenBatch

if TYPE_CHECKING:
    import sentencepiece
    import tiktoken
    import tokenizers

CHUNK_CHARACTERS = 4_000_000
"""Texts of about so many characters go to an engine at once; bounds what one call holds."""


class Engine(Protocol):
    """A library that encodes."""

    @property
    def name(self) -> str: ...  # noqa: D102

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of each text; raises DataRefused when the library gives up on one."""
        ...


def chunks(texts: Sequence[str]) -> Iterator[list[str]]:
    """Consecutive texts in lists of about CHUNK_CHARACTERS; a longer text comes alone."""
    if texts and sum(map(len, texts)) <= CHUNK_CHARACTERS:
        yield list(texts)
        return
    chunk: list[str] = []
    size = 0
    for text in texts:
        if chunk and size + len(text) > CHUNK_CHARACTERS:
            yield chunk
            chunk, size = [], 0
        chunk.append(text)
        size += len(text)
    if chunk:
        yield chunk


def flatten(rows: Sequence[Sequence[int]]) -> TokenBatch:
    """One list of ids per text, as a TokenBatch."""
    lengths_R = np.fromiter(map(len, rows), np.int64, len(rows))
    ids_N = np.fromiter(chain.from_iterable(rows), np.int32, int(lengths_R.sum()))
    return TokenBatch(ids_N, lengths_R)


@contextmanager
def failures_as_data_refused(engine: str) -> Iterator[None]:
    """What a library raises on a text, as DataRefused.

    A panic of Rust code arrives as a BaseException that no `except Exception` would catch, and
    would end the daemon for one bad record.
    """
    try:
        yield
    except Exception as error:
        raise DataRefused(f"{engine} could not encode a text: {one_line(error)}") from error
    except BaseException as error:
        if not is_panic(error):
            raise
        raise DataRefused(f"{engine} failed inside on a text: {one_line(error)}") from None


def is_panic(error: BaseException) -> bool:
    """Whether `error` is a panic of Rust code (its class can't be imported)."""
    return type(error).__name__ == "PanicException"


def one_line(error: BaseException, limit: int = 200) -> str:
    """The message of `error` in one line of at most `limit` characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"


class TokenizersEngine:
    """Hugging Face `tokenizers`: the reference for tokenizer.json files.

    Its word cache has a bound of its own (10,000 entries). Threads are Rayon's; see
    `loading.limit_threads`.
    """

    name = "tokenizers"

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of each text; the GIL is released."""
        batches = []
        for chunk in chunks(texts):
            with failures_as_data_refused(self.name):
                encodings = self._tokenizer.encode_batch_fast(chunk, add_special_tokens=False)
            batches.append(flatten([encoding.ids for encoding in encodings]))
        return TokenBatch.concatenate(batches)


class SentencePieceEngine:
    """The sentencepiece library: the reference for .model files; keeps no cache."""

    name = "sentencepiece"

    def __init__(self, processor: sentencepiece.SentencePieceProcessor, threads: int) -> None:
        self._processor = processor
        self._threads = threads or -1

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of each text."""
        batches = []
        for chunk in chunks(texts):
            with failures_as_data_refused(self.name):
                rows = self._processor.encode(
                    chunk, out_type=int, num_threads=self._threads, add_bos=False, add_eos=False
                )
            batches.append(flatten(rows))
        return TokenBatch.concatenate(batches)


class TiktokenEngine:
    """The tiktoken library: the reference for .tiktoken files; keeps no cache."""

    name = "tiktoken"

    def __init__(self, encoding: tiktoken.Encoding, threads: int) -> None:
        self._encoding = encoding
        self._threads = threads

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of each text, special tokens as text; the GIL is released."""
        batches = []
        for chunk in chunks(texts):
            with failures_as_data_refused(self.name):
                batches.append(flatten(self._rows(chunk)))
        return TokenBatch.concatenate(batches)

    def _rows(self, texts: list[str]) -> list[list[int]]:
        if self._threads == 1 or len(texts) == 1:
            return [self._encoding.encode_ordinary(text) for text in texts]
        return self._encoding.encode_ordinary_batch(texts, num_threads=self._threads or 8)
