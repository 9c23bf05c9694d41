"""URLs, e-mail addresses, IP addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address

from streamfreq.text.masking.base import Span

# Latin letters with accents, beside the ASCII ones.
_LATIN = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f"
# A host label is all Latin or has no Latin at all, so that the Chinese text that follows a host
# without a space stays outside.
_LABEL = rf"(?:[{_LATIN}0-9_%-]+|[^\W\d_{_LATIN}]+)"
# Paths: the characters of RFC 3986, and letters as people paste them, except the scripts that are
# written without spaces.
_PATH = r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%\u00c0-\u0e00\u0e80-\u1fff]*"


class UrlDetector:
    """http, https and ftp URLs, and hosts that begin with www.

    Punctuation that ends the sentence stays outside, and so does a bracket that was opened before
    the URL. Han, kana, hangul and Thai letters end a path.
    """

    _pattern = re.compile(
        rf"(?<![A-Za-z0-9])(?:(?:https?|ftp)://(?:[A-Za-z0-9._~!$&'()*+,;=:%-]{{1,128}}@)?"
        rf"(?:\[[0-9A-Fa-f:.]{{2,45}}\]|{_LABEL}(?:\.{_LABEL})*)"
        rf"|(?<![@._/-])www\.[{_LATIN}0-9-]{{1,63}}(?:\.[{_LATIN}0-9-]{{1,63}})+)"
        rf"(?::[0-9]{{1,5}})?(?:[/?#]{_PATH})?",
        re.IGNORECASE,
    )

    def find(self, text: str) -> list[Span]:
        """Spans of URLs."""
        if "://" not in text and "w." not in text and "W." not in text:
            return []
        return [
            (match.start(), match.start() + _without_tail(match[0]))
            for match in self._pattern.finditer(text)
        ]


def _without_tail(url: str) -> int:
    """Length of `url` without the punctuation and the unpaired brackets at its end."""
    stop = len(url)
    surplus = {")": url.count(")") - url.count("("), "]": url.count("]") - url.count("[")}
    while True:
        last = url[stop - 1]
        if last in surplus and surplus[last] > 0:
            surplus[last] -= 1
        elif last not in ".,;:!?'*":
            return stop
        stop -= 1


class EmailDetector:
    """E-mail addresses: a local part of at most 64 characters (RFC 5321) and a domain with a dot.

    Local parts are of Latin letters, digits and `._%+-`; one in another script can't be told from
    the text before it. The last label of the domain has no digit, so `lodash@4.17.21` stays.
    """

    _local = rf"[{_LATIN}0-9._%+-]"
    _pattern = re.compile(
        rf"(?<!{_local})[.%+-]*({_local}{{1,64}}"
        rf"@(?:[{_LATIN}0-9](?:[{_LATIN}0-9-]{{0,61}}[{_LATIN}0-9])?\.){{1,30}}"
        rf"(?:xn--[A-Za-z0-9-]{{1,59}}|[{_LATIN}]{{2,63}}))(?![{_LATIN}0-9])"
    )

    def find(self, text: str) -> list[Span]:
        """Spans of e-mail addresses."""
        if "@" not in text:
            return []
        return [match.span(1) for match in self._pattern.finditer(text)]


class IpDetector:
    """IPv4 and IPv6 addresses that the module ipaddress accepts; ports and masks stay.

    A version number of four parts is an IPv4 address too and can't be told from one, except after
    a letter (`v1.2.3.4`) or before a suffix (`1.2.3.4-rc1`). A shortened IPv6 address needs a
    digit: `::` and `a::b` are program text.
    """

    _v4 = r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}"
    _hex = r"[0-9A-Fa-f]{1,4}"
    # Begins with a set of characters, not with a lookbehind, so that the search skips fast.
    _v4_pattern = re.compile(
        r"[0-9](?<![A-Za-z0-9_].)(?<![0-9]\..)[0-9]{0,2}(?:\.[0-9]{1,3}){3}"
        r"(?![A-Za-z0-9_])(?!\.[0-9])(?!-[A-Za-z])"
    )
    # What every address holds; a search for a first literal character is the fastest.
    _v4_hint = re.compile(r"\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]")
    _v6_hint = re.compile(
        rf":(?:(?<=:):(?<![G-Zg-z_]::)(?![0-9A-Fa-f]*[G-Zg-z_])|{_hex}:{_hex}:{_hex}:{_hex}:)"
    )
    _v6_pattern = re.compile(
        rf"(?<![A-Za-z0-9_:.])(?:(?:{_hex}:){{6}}(?:{_v4}|{_hex}:{_hex})"
        rf"|(?:{_hex}(?::{_hex}){{0,6}})?::(?:(?:{_hex}:){{0,5}}{_v4}|{_hex}(?::{_hex}){{0,6}}|))"
        r"(?:%[A-Za-z0-9_]{1,15})?(?![A-Za-z0-9_]|:[0-9A-Fa-f:])(?!\.[0-9])"
    )

    def find(self, text: str) -> list[Span]:
        """Spans of addresses: of IPv6 alone where there is one."""
        if self._v6_hint.search(text):
            spans = list(self._valid(self._v6_pattern, text))
            if spans:
                return spans  # an IPv4 address may be part of one; the next round sees the rest
        return list(self._valid(self._v4_pattern, text)) if self._v4_hint.search(text) else []

    @staticmethod
    def _valid(pattern: re.Pattern[str], text: str) -> Iterator[Span]:
        for match in pattern.finditer(text):
            found = match[0]
            if "::" in found and not any(character.isdigit() for character in found):
                continue
            try:
                ip_address(found)
            except ValueError:
                continue
            yield match.span()
