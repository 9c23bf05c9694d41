"""Phone numbers: phonenumbers judges the stretches of digits that a cheap pattern picks out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from phonenumbers import SUPPORTED_REGIONS, PhoneNumberMatch, PhoneNumberMatcher

from streamfreq.errors import ConfigError
from streamfreq.text.masking.base import Span

_SEPARATOR = r"[-./ ()\u00a0\u2010-\u2015\u3000\uff08\uff09\uff0d~]"
# Possessive: a stretch ends where its digits end, and nothing is tried twice. The lookbehinds come
# after the first digit so that the search skips to digits fast.
_STRETCH = re.compile(
    r"[0-9](?<![A-Za-z0-9_].)(?<![A-Za-z0-9]-.)(?<![0-9][.:].)"
    rf"(?:{_SEPARATOR}{{0,4}}+[0-9]){{6,}}+(?![A-Za-z0-9_]|:[0-9])"
    r"(?:[ ,;]{0,2}(?:ext\.?|extn\.?|x)[ :]?[0-9]{1,7}(?![0-9A-Za-z]))?",
    re.IGNORECASE,
)
_LEAD = re.compile(r"(?:[+\uff0b(\uff08] ?){1,2}\Z")

_DAY, _MONTH, _YEAR = "(?:0?[1-9]|[12][0-9]|3[01])", "(?:0?[1-9]|1[0-2])", "(?:19|20)[0-9]{2}"
# Dates, ranges of years, thousands set off by spaces.
_NO_PHONE = re.compile(
    r"(?<![0-9A-Za-z+(./-])(?:"
    rf"{_YEAR}([-./ ]){_MONTH}\1{_DAY}"
    rf"|{_DAY}([-./ ]){_DAY}\2{_YEAR}"
    rf"|{_YEAR}[-/\u2013]{_YEAR}"
    r"|(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[1-9]|[12][0-9]|3[01]){2}(?:19|20)[0-9]{2}"
    r"|[1-9][0-9]{0,2}(?: 000)+"
    r")(?![0-9]|[-./][0-9])"
)
_BLANK = "\u3007"

# Stretches that are no national number: a decimal fraction, a version, a range, single digits, and
# the limits of 32-bit integers.
_NOT_NATIONAL = re.compile(
    r"[0-9]+\.[0-9]+|(?:[0-9]+\.){3,}[0-9]+(?<!\.[0-9]{2}\.[0-9]{2}\.[0-9]{2})"
    r"|[1-9][0-9]{4,5}[-\u2013][1-9][0-9]{4,5}|(?:[0-9][^0-9]+){4}.*"
    r"|2147483647|2147483648|4294967295|4294967296"
)
_MIN_NATIONAL_DIGITS = 8


class PhoneDetector:
    """Valid phone numbers: international ones with a plus, national ones of the given regions.

    phonenumbers checks each stretch of digits (leniency VALID: the number exists in the region's
    plan, with the national prefix where it is usually written). Dates, decimal fractions, versions,
    and digits that hang on a letter or an identifier (CVE-2021-44228) are not looked at, nor are
    national numbers of fewer than eight digits.
    """

    def __init__(self, regions: Sequence[str]) -> None:
        """Raises ConfigError when a region is unknown."""
        self._regions = tuple(region.upper() for region in regions)
        for region in self._regions:
            if region not in SUPPORTED_REGIONS:
                raise ConfigError(
                    f"text.phone_regions: {region!r} is no region with a numbering plan; "
                    "give codes of ISO 3166 such as US, GB, CN, DE"
                )

    def find(self, text: str) -> list[Span]:
        """Spans of phone numbers."""
        if not _STRETCH.search(text):
            return []
        # Blanked at the same length, so that positions stay.
        plain = _NO_PHONE.sub(lambda match: _BLANK * len(match[0]), text)
        spans: list[Span] = []
        for match in _STRETCH.finditer(plain):
            lead = _LEAD.search(plain, max(0, match.start() - 4), match.start())
            start = lead.start() if lead else match.start()
            # One character on each side, because phonenumbers looks at the neighbours.
            left = max(0, start - 1)
            window = plain[left : match.end() + 1]
            for region in self._regions_for(window):
                found = [
                    (left + hit.start + _indent(hit.raw_string), left + hit.end)
                    for hit in _matches(window, region)
                    if region is None or _may_be_national(hit.raw_string)
                ]
                if found:
                    spans += found
                    break
        return spans

    def _regions_for(self, window: str) -> Sequence[str | None]:
        """The regions to try in turn; a plus needs none."""
        if "+" in window or "\uff0b" in window:
            return (None, *self._regions)
        return self._regions if _may_be_national(window) else ()


def _may_be_national(number: str) -> bool:
    """Whether `number`, with perhaps a neighbour on each side, can be a national phone number."""
    if sum("0" <= character <= "9" for character in number) < _MIN_NATIONAL_DIGITS:
        return False
    stretch = _STRETCH.search(number)
    return stretch is not None and not _NOT_NATIONAL.fullmatch(stretch[0])


def _indent(number: str) -> int:
    """Spaces at the start: phonenumbers leaves them where it splits a stretch at a slash."""
    return len(number) - len(number.lstrip())


def _matches(window: str, region: str | None) -> Iterable[PhoneNumberMatch]:
    matches: Iterable[PhoneNumberMatch] = PhoneNumberMatcher(window, region)
    return matches
