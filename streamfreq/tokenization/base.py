"""The port to tokenizers: texts in, flat ids out, and ids back to text for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from streamfreq.records import TokenBatch


class Tokenizer(Protocol):
    """Turns texts into ids. Text that looks like a special token is encoded as text.

    Attributes:
        name: how people call it ("gpt2"), for logs.
        engine: which library does the work ("gigatoken", "tokenizers", "sentencepiece", ...).
        vocab_size: every id lies in [0, vocab_size).
        fingerprint: hex; equal exactly when the same text gives the same ids and the vocabulary
            is the same, whatever the engine.
        ids_per_token: how many ids stand for one token (count-min with d rows: d; else 1).
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def engine(self) -> str: ...  # noqa: D102
    @property
    def vocab_size(self) -> int: ...  # noqa: D102
    @property
    def fingerprint(self) -> str: ...  # noqa: D102
    @property
    def ids_per_token(self) -> int: ...  # noqa: D102

    def encode_batch(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of each text, without special tokens, padding or truncation.

        Texts are valid Unicode (no lone surrogates). May raise on a poison text; the caller then
        isolates it. Releases the GIL where the engine can.
        """
        ...

    def token_text(self, token_id: int) -> str:
        """The text that people see for an id (bytes that are no UTF-8 as \\xNN)."""
        ...

    def labels(self) -> dict[int, str]:
        """Names of ids that only this process knows (hashed words: the heaviest); often empty."""
        ...
