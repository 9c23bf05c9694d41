"""Cleaning: HTML entities, control characters, Unicode normalization, whitespace, case.

`clean(clean(x)) == clean(x)` for every combination of options. One round does, in this order and
only as far as configured: unescape HTML, remove control characters, normalize, collapse
whitespace, lower case and normalize again. Each step can make work for an earlier one (`&amp;lt;`,
a control character between a letter and its accent), so rounds repeat until nothing changes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from typing import Literal
from unicodedata import combining, is_normalized, normalize

import numpy as np

from streamfreq.config import TextConfig

MAX_ROUNDS = 16
"""A text that still changes after so many rounds nests its HTML entities with ill intent."""

MAX_MARKS = 30
"""Longest run of combining marks that is normalized (the limit of UAX #15, Stream-Safe Format)."""

_FIRST_PRINTABLE, _LAST_PRINTABLE, _AMPERSAND = np.frombuffer(b" ~&", np.uint8)

_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff]+")


_SLICE_CHARACTERS = 1 << 17
"""What is looked through at once; more would not stay in the processor's cache."""


class Cleaner:
    """Applies one `TextConfig` (all of it but the masks) to texts of valid Unicode.

    - HTML entities: unescaped until none is left, so `&amp;lt;` becomes `<`. A text nested deeper
      than MAX_ROUNDS loses all its ampersands instead: the cost stays linear.
    - Control characters: category Cc except whitespace (\\t \\n \\v \\f \\r and U+0085), and
      U+FEFF, which Unicode has deprecated as anything but a byte order mark. Other format
      characters stay: ZWJ joins emoji, ZWNJ is spelling in Persian, ZWSP ends words in Khmer and
      Thai, and the bidirectional marks belong to right-to-left text.
    - Whitespace: what `str.split` splits on, thus also U+00A0 and the ideographic space U+3000.
    - Normalization: what is not normalized yet loses the marks behind the thirtieth of a run,
      because sorting a run of n marks takes n^2 steps.
    - Lower case: `str.lower`, then the normalization again (İ followed by a mark needs it).
    """

    def __init__(self, text: TextConfig) -> None:
        self._unescape = text.unescape_html
        self._strip = text.strip_control
        self._collapse = text.collapse_whitespace
        self._lower = text.lowercase
        self._form: Literal["NFC", "NFKC"] | None = (
            None if text.normalize == "none" else text.normalize
        )
        self._must_print = self._strip or self._collapse

    def clean_batch(self, texts: Sequence[str]) -> list[str]:
        """Each text cleaned; an empty string where nothing is left.

        Texts in ASCII, most of them clean already, are looked through all at once.
        """
        rows = [row for row, text in enumerate(texts) if text.isascii()]
        cleaned = list(texts)
        suspects = set(range(len(texts))).difference(rows) if len(rows) < len(texts) else set()
        for part in _slices(rows, texts):
            suspects.update(self._need_a_round([texts[row] for row in part], part))
        if self._lower:
            cleaned = [text.lower() for text in cleaned]
        for row in suspects:
            cleaned[row] = self.clean(texts[row])
        return cleaned

    def _need_a_round(self, texts: Sequence[str], rows: Sequence[int]) -> list[int]:
        """Those of the `rows` whose ASCII text some step (but the lower case) may change."""
        if not texts or not (self._must_print or self._unescape):
            return []
        # A space on each side of each text makes its leading and trailing ones double.
        codes = np.frombuffer(f" {' '.join(texts)} ".encode("ascii"), np.uint8)
        marked = np.zeros(len(codes), np.bool_)
        if self._must_print:
            marked |= codes - _FIRST_PRINTABLE > _LAST_PRINTABLE - _FIRST_PRINTABLE
        if self._unescape:
            marked |= codes == _AMPERSAND
        if self._collapse:
            spaces = codes == _FIRST_PRINTABLE
            double = spaces[1:] & spaces[:-1]
            marked[1:] |= double
            marked[:-1] |= double
        places = np.flatnonzero(marked)
        if not len(places):
            return []
        ends_R = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1)
        found = np.unique(np.searchsorted(ends_R, places, side="left"))
        return [rows[index] for index in found.tolist()]

    def clean(self, text: str) -> str:
        """One text cleaned. Most texts are clean already and only pay for the check."""
        if not self._needs_no_round(text):
            # Single and double line breaks between words are what most other texts need mended.
            joined = text.strip().replace("\n\n", " ").replace("\n", " ") if self._collapse else ""
            if not joined or not self._needs_no_round(joined):
                return self._repeat(text)
            text = joined
        if not self._lower:
            return text
        lowered = text.lower()
        return lowered if lowered == text or text.isascii() else self._repeat(text)

    def _needs_no_round(self, text: str) -> bool:
        """Whether all steps but the lower case leave `text` as it is; may say no when unsure."""
        if self._must_print and not text.isprintable():
            return False
        if self._collapse and ("  " in text or text[:1] == " " or text[-1:] == " "):
            return False
        if self._unescape and "&" in text:
            return False
        return self._form is None or text.isascii() or is_normalized(self._form, text)

    def _repeat(self, text: str) -> str:
        for _ in range(MAX_ROUNDS):
            changed = self._round(text)
            if changed == text:
                return text
            text = changed
        while True:
            # NFKC makes an ampersand of U+FF06 and U+FE60, so dropping them once is not enough.
            changed = self._round(text.replace("&", ""))
            if changed == text:
                return text
            text = changed

    def _round(self, text: str) -> str:
        if self._unescape and "&" in text:
            text = html.unescape(text)
        if self._strip and not text.isprintable():
            text = _CONTROL.sub("", text)
        text = self._normalized(text)
        if self._collapse:
            text = " ".join(text.split())
        if self._lower:
            text = self._normalized(text.lower())
        return text

    def _normalized(self, text: str) -> str:
        if self._form is None or text.isascii():
            return text
        marks = "".join(filter(combining, set(text)))
        if marks:
            text = re.sub(f"([{marks}]{{{MAX_MARKS}}})[{marks}]+", r"\1", text)
        return normalize(self._form, text)


def _slices(rows: list[int], texts: Sequence[str]) -> Iterator[list[int]]:
    """Consecutive rows whose texts together have about _SLICE_CHARACTERS."""
    ends_R = np.cumsum(np.fromiter((len(texts[row]) for row in rows), np.int64, len(rows)))
    first = 0
    while first < len(rows):
        begun = ends_R[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends_R, begun + _SLICE_CHARACTERS, "right")))
        yield rows[first:last]
        first = last
