"""Texts on which the tokenizer fails are set aside alone; the rest of their batch is encoded."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from streamfreq.records import BoolArray, TokenBatch
from streamfreq.tokenization.base import Tokenizer

log = logging.getLogger("streamfreq.tokenization")


def encode_isolating(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[TokenBatch, BoolArray]:
    """Tokens of all texts, and which of them the engine could encode; never raises for a text.

    When the batch fails it is halved until the poison texts stand alone, so that one record
    costs O(log R) more calls and loses no other. A poison text has no tokens.
    """
    try:
        return tokenizer.encode_batch(texts), np.ones(len(texts), np.bool_)
    except Exception as error:
        if len(texts) == 1:
            log.warning(
                "the tokenizer fails on a record of %d characters: %s", len(texts[0]), error
            )
            return TokenBatch.empty(1), np.zeros(1, np.bool_)
    middle = len(texts) // 2
    left, left_usable = encode_isolating(tokenizer, texts[:middle])
    right, right_usable = encode_isolating(tokenizer, texts[middle:])
    return TokenBatch.concatenate([left, right]), np.concatenate([left_usable, right_usable])
