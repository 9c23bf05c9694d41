"""Cleaning: HTML entities, control characters, Unicode normalization, whitespace, case.

`clean(clean(x)) == clean(x)` for every combination of options. One round does, in this order and
only as far as configured: unescape HTML, remove control characters, normalize, collapse
whitespace, lower case and normalize again. Each step can make work for an earlier one (`&amp;lt;`,
a control character between a letter and its accent), so rounds repeat until nothing changes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Literal
from unicodedata import combining, is_normalized, normalize

from streamfreq.config import TextConfig

MAX_ROUNDS = 16
"""A text that still changes after so many rounds nests its HTML entities with ill intent."""

MAX_MARKS = 30
"""Longest run of combining marks that is normalized (the limit of UAX #15, Stream-Safe Format)."""

_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff]+")


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
        """Each text cleaned; an empty string where nothing is left."""
        return list(map(self.clean, texts))

    def clean(self, text: str) -> str:
        """One text cleaned. Most texts are clean already and only pay for the check."""
        if self._needs_no_round(text):
            if not self._lower:
                return text
            lowered = text.lower()
            if lowered == text or text.isascii():
                return lowered
        return self._repeat(text)

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
