"""Replaces personal data by placeholders: `mask(mask(x)) == mask(x)`, and nothing is left to find.

The order is fixed, the container before what it may contain and the stricter check before the
looser: url (may hold an e-mail address, an IP address, long numbers), email (its domain may look
like www.), iban (holds digit groups), cn_id (18 digits with a date, a place and a check digit)
before card (any 13 to 19 with Luhn), ip (digits with dots) before phone, which accepts most forms.
Rounds repeat until none finds anything, because a placeholder changes its neighbours' context.

Shape legend: R texts, K kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from streamfreq.config import TextConfig
from streamfreq.records import BoolArray, Int64Array
from streamfreq.text.masking.base import Detector, Span

PLACEHOLDERS = {
    kind: f"[{kind}]" for kind in ("url", "email", "iban", "cn_id", "card", "ip", "phone")
}
"""What stands for each kind, in the order of detection.

Cleaning leaves them alone whatever its options: ASCII, lower case, without whitespace or `&`, and
no combining mark composes with a bracket (with `>` one does: U+0338 makes it U+226F).
"""

_CHUNK_CHARACTERS = 1 << 20


class Masker:
    """Masks the kinds of personal data that a `TextConfig` names in `mask`."""

    def __init__(self, text: TextConfig) -> None:
        """Raises ConfigError when a phone region is unknown."""
        self.detectors: dict[str, Detector] = {
            kind: _detector(kind, text) for kind in PLACEHOLDERS if kind in text.mask
        }
        self._gates = [_GATES[kind] for kind in self.detectors]

    def mask_batch(self, texts: Sequence[str]) -> list[str]:
        """Each text masked. Texts that can hold nothing cost a few vectorised comparisons."""
        masked = list(texts)
        if not self.detectors:
            return masked
        for first, last in _chunks(texts):
            possible_RK = self._possible(texts[first:last])
            for row in np.flatnonzero(possible_RK.any(axis=1)):
                text = masked[first + row]
                changed = self._round(text, possible_RK[row].tolist())
                if changed is not text:
                    masked[first + row] = self.mask(changed)
        return masked

    def mask(self, text: str) -> str:
        """One text masked."""
        everything = [True] * len(self.detectors)
        while True:
            changed = self._round(text, everything)
            if changed is text:
                return text
            text = changed

    def _round(self, text: str, wanted: Sequence[bool]) -> str:
        """Each wanted detector once; `text` itself when they find nothing."""
        for (kind, detector), runs in zip(self.detectors.items(), wanted, strict=True):
            spans = detector.find(text) if runs else ()
            if spans:
                text = _replace(text, spans, PLACEHOLDERS[kind])
        return text

    def _possible(self, texts: Sequence[str]) -> BoolArray:
        """(R, K): which texts have enough of the characters that each kind needs."""
        characters = _Characters(texts)
        return np.stack([gate(characters) for gate in self._gates], axis=1)


class _Characters:
    """Where digits and some other characters stand in each of R texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        ends_R = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
        self._bounds = np.concatenate([np.zeros(1, np.int64), ends_R])
        # One byte per character; what is not ASCII becomes a question mark, which nobody counts.
        self._bytes = np.frombuffer("".join(texts).encode("ascii", "replace"), np.uint8)
        self._positions: dict[str, Int64Array] = {}

    def positions(self, character: str) -> Int64Array:
        """Where `character` stands in the joined texts; "0" stands for any digit."""
        if character not in self._positions:
            offset = self._bytes - np.uint8(ord(character))
            hits = offset < 10 if character == "0" else offset == 0
            self._positions[character] = np.flatnonzero(hits)
        return self._positions[character]

    def within(self, width: int, count: int, character: str) -> BoolArray:
        """(R,): whether some stretch of `width` characters holds `character` so often."""
        positions = self.positions(character)
        last = positions[count - 1 :]
        first = positions[: len(last)]
        rows = self._rows(first[last - first < width])
        return self._marked(rows)

    def pair(self, first: str, second: str) -> BoolArray:
        """(R,): whether `second` stands directly behind `first`."""
        positions = self.positions(second)
        return self._marked(self._rows(positions[self._bytes[positions - 1] == ord(first)]))

    def digits_behind_letters(self) -> BoolArray:
        """(R,): whether two ASCII letters and two digits stand in a row."""
        digits = self.positions("0")
        digits = digits[:-1][np.diff(digits) == 1]
        letters = [(self._bytes[digits - back] | 0x20) - np.uint8(ord("a")) < 26 for back in (1, 2)]
        return self._marked(self._rows(digits[letters[0] & letters[1]]))

    def _rows(self, positions: Int64Array) -> Int64Array:
        return np.searchsorted(self._bounds, positions, side="right") - 1

    def _marked(self, rows: Int64Array) -> BoolArray:
        marked = np.zeros(len(self._bounds) - 1, np.bool_)
        marked[rows] = True
        return marked


# What each kind needs at the least. A gate may say yes too often (it does where two texts meet),
# never no too often.
_GATES: dict[str, Callable[[_Characters], BoolArray]] = {
    "url": lambda text: text.pair(":", "/") | text.pair("w", ".") | text.pair("W", "."),
    "email": lambda text: text.within(1, 1, "@"),
    "iban": lambda text: text.digits_behind_letters(),
    "cn_id": lambda text: text.within(19, 17, "0"),
    "card": lambda text: text.within(18, 13, "0"),
    "ip": lambda text: text.within(9, 3, ".") | text.within(2, 2, ":") | text.within(26, 6, ":"),
    "phone": lambda text: text.within(31, 7, "0"),
}


def _detector(kind: str, text: TextConfig) -> Detector:
    """The detector of `kind`; its library is imported here and not before."""
    if kind == "phone":
        from streamfreq.text.masking.phone import PhoneDetector

        return PhoneDetector(text.phone_regions)
    if kind in ("iban", "cn_id", "card"):
        from streamfreq.text.masking import numbers

        detectors: dict[str, Callable[[], Detector]] = {
            "iban": numbers.IbanDetector,
            "cn_id": numbers.ResidentIdDetector,
            "card": numbers.CardDetector,
        }
        return detectors[kind]()
    from streamfreq.text.masking import web

    web_detectors: dict[str, Callable[[], Detector]] = {
        "url": web.UrlDetector,
        "email": web.EmailDetector,
        "ip": web.IpDetector,
    }
    return web_detectors[kind]()


def _replace(text: str, spans: Sequence[Span], placeholder: str) -> str:
    parts: list[str] = []
    position = 0
    for start, stop in spans:
        parts += (text[position:start], placeholder)
        position = stop
    parts.append(text[position:])
    return "".join(parts)


def _chunks(texts: Sequence[str]) -> list[Span]:
    """Ranges of texts with about a million characters each, so that the arrays stay small."""
    ranges: list[Span] = []
    first = characters = 0
    for index, text in enumerate(texts):
        characters += len(text)
        if characters >= _CHUNK_CHARACTERS:
            ranges.append((first, index + 1))
            first, characters = index + 1, 0
    if first < len(texts):
        ranges.append((first, len(texts)))
    return ranges
