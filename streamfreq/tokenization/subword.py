"""A tokenizer with a fixed vocabulary: an engine, the names of the ids, a fingerprint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamfreq.records import TokenBatch
from streamfreq.tokenization.engines import Engine


@dataclass(frozen=True)
class Vocabulary:
    """The ids of a tokenizer.

    Attributes:
        size: one more than the largest id.
        texts: id -> text for people; ids without a token are absent.
    """

    size: int
    texts: Mapping[int, str]


class SubwordTokenizer:
    """A tokenizer whose vocabulary comes from a file."""

    ids_per_token = 1

    def __init__(self, name: str, engine: Engine, vocabulary: Vocabulary, fingerprint: str) -> None:
        self.name = name
        self.fingerprint = fingerprint
        self._engine = engine
        self._vocabulary = vocabulary

    @property
    def engine(self) -> str:
        """The library that does the work."""
        return self._engine.name

    @property
    def vocab_size(self) -> int:
        """One more than the largest id, added and special tokens included."""
        return self._vocabulary.size

    def encode_batch(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of each text; raises DataRefused when the library gives up on one."""
        return self._engine.encode(texts)

    def token_text(self, token_id: int) -> str:
        r"""The text of an id; bytes that are no UTF-8 as \xNN; `#id` where there is no token."""
        return self._vocabulary.texts.get(token_id, f"#{token_id}")

    def labels(self) -> dict[int, str]:
        """Empty: every process knows this vocabulary from its file."""
        return {}


def bytes_text(content: bytes) -> str:
    r"""Bytes of a token as text for people.

    >>> bytes_text(" né".encode()), bytes_text(b"\xe4\xb8")
    (' né', '\\xe4\\xb8')
    """
    return content.decode("utf-8", errors="backslashreplace")


def piece_text(piece: str) -> str:
    r"""A SentencePiece piece as text for people: its space mark as a space, byte pieces as bytes.

    >>> piece_text("▁the"), piece_text("<0x41>"), piece_text("<0xE4>")
    (' the', 'A', '\\xe4')
    """
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        try:
            return bytes_text(bytes([int(piece[3:5], 16)]))
        except ValueError:
            return piece
    return piece.replace("▁", " ")
