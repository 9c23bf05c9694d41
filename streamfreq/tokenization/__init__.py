"""Tokenizers behind one port: Hugging Face, SentencePiece, tiktoken, and hashed words.

Importing this package loads no tokenizer library; `load_tokenizer` imports the one it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfreq.tokenization.base import Tokenizer

if TYPE_CHECKING:
    from streamfreq.config import TokenizerConfig

__all__ = ["Tokenizer", "load_tokenizer"]


def load_tokenizer(config: TokenizerConfig) -> Tokenizer:
    """The tokenizer that `config.path` names, ready to encode.

    Raises ConfigError, one line that names the path and the way out: nothing there, a damaged
    file, an unknown format, a hub name without a network, an extra that is not installed, or
    `engine = "gigatoken"` for a tokenizer that gigatoken can't do.
    """
    from streamfreq.tokenization.loading import load

    return load(config)
