"""Texts with characters of a newer Unicode version go to the reference engine.

Split rules ask whether a character is a letter, a number, a mark. Libraries with Unicode tables of
different age answer differently for what the older one does not know (seen: 4,788 code points new
in Unicode 17), so a fast engine is trusted only with what has long been assigned.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Sequence

import numpy as np

from streamfreq.records import BoolArray, Int64Array, TokenBatch
from streamfreq.tokenization.engines import Engine, chunks

_TABLE_PLANES = (0, 1, 2, 3, 14)
_PRIVATE_PLANES = (15, 16)
_PLANE = 0x10000


class GuardedEngine:
    """A fast engine, and the reference for texts that hold an unassigned character."""

    def __init__(self, fast: Engine, reference: Engine) -> None:
        self._fast = fast
        self._reference = reference

    @property
    def name(self) -> str:
        """The fast engine's: it does nearly all the work."""
        return self._fast.name

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of each text, in order."""
        return TokenBatch.concatenate([self._encode(chunk) for chunk in chunks(texts)])

    def _encode(self, texts: list[str]) -> TokenBatch:
        guarded_R = texts_with_unassigned(texts)
        if not guarded_R.any():
            return self._fast.encode(texts)
        by_engine = [
            engine.encode([texts[index] for index in np.flatnonzero(mask_R).tolist()])
            for engine, mask_R in ((self._fast, ~guarded_R), (self._reference, guarded_R))
        ]
        order_R = np.concatenate([np.flatnonzero(~guarded_R), np.flatnonzero(guarded_R)])
        return reorder(TokenBatch.concatenate(by_engine), order_R)


def reorder(batch: TokenBatch, order_R: Int64Array) -> TokenBatch:
    """The batch whose record `order_R[i]` is record i of `batch`."""
    lengths_R = np.empty_like(batch.lengths_R)
    lengths_R[order_R] = batch.lengths_R
    starts_R = np.cumsum(lengths_R) - lengths_R
    within_N = np.arange(len(batch.ids_N)) - np.repeat(
        np.cumsum(batch.lengths_R) - batch.lengths_R, batch.lengths_R
    )
    ids_N = np.empty_like(batch.ids_N)
    ids_N[np.repeat(starts_R[order_R], batch.lengths_R) + within_N] = batch.ids_N
    return TokenBatch(ids_N, lengths_R)


def texts_with_unassigned(texts: Sequence[str]) -> BoolArray:
    """Which texts hold a character that this Python's Unicode tables do not assign."""
    found_R = np.zeros(len(texts), np.bool_)
    rows = [row for row, text in enumerate(texts) if not text.isascii()]
    if not rows:
        return found_R
    suspects = [texts[row] for row in rows]
    points = np.frombuffer("".join(suspects).encode("utf-32-le", "surrogatepass"), np.uint32)
    places = np.flatnonzero(_unassigned()[points])
    if len(places):
        ends = np.cumsum(np.fromiter(map(len, suspects), np.int64, len(suspects)))
        found_R[np.array(rows)[np.searchsorted(ends, places, side="right")]] = True
    return found_R


@functools.cache
def _unassigned() -> BoolArray:
    """Code point -> whether it is unassigned (category Cn), noncharacters included."""
    table = np.ones(17 * _PLANE, np.bool_)
    for plane in _TABLE_PLANES:
        first = plane * _PLANE
        table[first : first + _PLANE] = [
            unicodedata.category(chr(point)) == "Cn" for point in range(first, first + _PLANE)
        ]
    for plane in _PRIVATE_PLANES:
        table[plane * _PLANE : (plane + 1) * _PLANE - 2] = False
    return table
