"""Numbers with a check digit: IBAN, Chinese resident id, payment card (the checks by stdnum)."""

from __future__ import annotations

import re

from stdnum import iban, luhn
from stdnum.cn import ric

from streamfreq.text.masking.base import Span

_ENDS_HERE = r"(?![A-Za-z0-9])"


class IbanDetector:
    """IBANs of ISO 13616, in one piece or with single spaces, in either case.

    The country's structure and the check digits must fit, and the country's own check where stdnum
    has one.
    """

    # Begins at the check digits, which are rarer than letters: the country is looked at backwards.
    _pattern = re.compile(
        r"[0-9](?<=[A-Za-z]{2}.)(?<![A-Za-z0-9][A-Za-z]{2}.)[0-9](?: ?[A-Za-z0-9]){11,30}"
    )
    _end = re.compile(rf"[A-Za-z0-9]{_ENDS_HERE}")

    def find(self, text: str) -> list[Span]:
        """Spans of IBANs."""
        spans: list[Span] = []
        match = self._pattern.search(text)
        while match:
            start = match.start() - 2
            stop = self._stop(text, start, match.end())
            if stop:
                spans.append((start, stop))
            match = self._pattern.search(text, stop or match.start() + 2)
        return spans

    def _stop(self, text: str, start: int, limit: int) -> int:
        """Where the IBAN at `start` ends, 0 when there is none: words may follow it."""
        ends = [match.end() for match in self._end.finditer(text, start + 4, limit)]
        return next((end for end in reversed(ends) if iban.is_valid(text[start:end])), 0)


class ResidentIdDetector:
    """Chinese resident ids of 18 characters (GB 11643), perhaps written 6-8-4.

    Place, date of birth and check digit must fit; the last may be X.
    """

    _pattern = re.compile(
        rf"[1-9](?<![A-Za-z0-9].)[0-9]{{5}}([ -]?)[0-9]{{8}}\1[0-9]{{3}}[0-9Xx]{_ENDS_HERE}"
    )

    def find(self, text: str) -> list[Span]:
        """Spans of resident ids."""
        return [
            match.span()
            for match in self._pattern.finditer(text)
            if ric.is_valid(match[0].replace(match[1], ""))
        ]


class CardDetector:
    """Payment card numbers: 13 to 19 digits of a known network that pass Luhn.

    In one piece, or in groups with the same separator (a space or a dash) throughout, the first
    group of four digits, as cards are printed. Looking at the network keeps most identifiers and
    timestamps in milliseconds out, of which one in ten passes Luhn.
    """

    _pattern = re.compile(
        r"[2-689](?<![A-Za-z0-9].)(?<![0-9][.,].)"
        r"[0-9]{3}(?:[0-9]{9,15}|([ -])[0-9]{3,7}(?:\1[0-9]{1,7}){1,4})"
        rf"{_ENDS_HERE}(?![.,][0-9])"
    )
    # Issuer ranges of ISO/IEC 7812 as the networks publish them.
    _networks = re.compile(
        r"4[0-9]{12}(?:[0-9]{3}){0,2}"  # Visa
        r"|(?:5[1-5][0-9]{2}|222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}"
        r"|220[0-4][0-9]{12,15}"  # Mir
        r"|3[47][0-9]{13}"  # American Express
        r"|3(?:0[0-59]|[689][0-9])[0-9]{11,16}"  # Diners Club
        r"|35(?:2[89]|[3-8][0-9])[0-9]{12,15}"  # JCB
        r"|5[06-8][0-9]{11,17}"  # Maestro
        r"|6[0-9]{12,18}"  # Discover, UnionPay, Maestro, RuPay
        r"|8[12][0-9]{14}"  # RuPay
        r"|(?:9792|9558[0-9]{0,3})[0-9]{12}"  # Troy, older UnionPay
    )

    def find(self, text: str) -> list[Span]:
        """Spans of card numbers."""
        spans: list[Span] = []
        match = self._pattern.search(text)
        while match:
            stop = self._stop(match)
            if stop:
                spans.append((match.start(), stop))
            match = self._pattern.search(text, stop or match.start() + 4)
        return spans

    def _stop(self, match: re.Match[str]) -> int:
        """Where the card number ends, 0 when it is none: other groups of digits may follow it."""
        separator = match[1]
        groups = match[0].split(separator) if separator else [match[0]]
        for count in range(len(groups), 0, -1):
            digits = "".join(groups[:count])
            if self._networks.fullmatch(digits) and luhn.is_valid(digits):
                return match.start() + len(digits) + (count - 1)
        return 0
