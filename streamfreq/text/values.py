"""A record's bytes to its text, and for JSON its event time; what can't be used says why.

JSON is parsed by pydantic-core: a third of a microsecond per headline, and a fixed limit of
nesting that does not depend on how deep the caller's own stack is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json

from streamfreq.config import ValueConfig
from streamfreq.text.event_time import parse_event_time_ms

_BOM = "\ufeff"
_REPLACEMENT = "\ufffd"

# One escape of a JSON string: a surrogate pair, a lone surrogate (group 1), or any other. Matching
# every escape keeps a backslash that is itself escaped from looking like the start of one.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


class Unusable(Exception):
    """A value gives no text; `kind` is one of the kinds of BadValue."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


def decode(value: bytes, replace: bool, tallies: Counter[str]) -> str:
    """UTF-8 to text, without a byte order mark at its start.

    With `replace`, U+FFFD stands for each maximal subpart of an ill-formed sequence (the practice
    of the Unicode Standard, section 3.9, and of WHATWG), tallied as `replaced_utf8`; without it
    such a value raises Unusable.
    """
    try:
        text = str(value, "utf-8")
    except UnicodeDecodeError:
        if not replace:
            raise Unusable("invalid_utf8") from None
        tallies["replaced_utf8"] += 1
        text = str(value, "utf-8", "replace")
    return text[1:] if text[:1] == _BOM else text


def repair_surrogates(document: str) -> str:
    r"""The JSON `document` with U+FFFD in place of every escaped surrogate without its partner.

    >>> repair_surrogates(r'"\ud83d\ude00 \ud83d \\ud83d"')
    '"\\ud83d\\ude00 \ufffd \\\\ud83d"'
    """
    return _ESCAPE.sub(lambda match: _REPLACEMENT if match[1] else match[0], document)


class FieldPath:
    """A dotted path into nested objects; at each level a literal key with dots wins.

    >>> FieldPath("a.b").find({"a": {"b": 1}}), FieldPath("a.b").find({"a.b": 2, "a": {"b": 1}})
    (1, 2)
    """

    MISSING = object()

    def __init__(self, path: str) -> None:
        self._parts = path.split(".")

    def find(self, document: Any) -> Any:
        """The value at the path, or MISSING."""
        return self._find(document, 0)

    def _find(self, document: Any, start: int) -> Any:
        if not isinstance(document, dict):
            return self.MISSING
        parts = self._parts
        key = ".".join(parts[start:])
        if key in document:
            return document[key]
        for stop in range(len(parts) - 1, start, -1):
            inner = document.get(".".join(parts[start:stop]))
            found = self._find(inner, stop)
            if found is not self.MISSING:
                return found
        return self.MISSING


class TextReader:
    """Values that are the text itself."""

    def __init__(self, value: ValueConfig) -> None:
        self._replace = value.on_invalid_utf8 == "replace"

    def read(self, value: bytes, tallies: Counter[str]) -> tuple[str, int | None]:
        """The text, and no event time. Raises Unusable."""
        return decode(value, self._replace, tallies), None

    def read_plain(self, values: Sequence[bytes | None]) -> list[str] | None:
        """The texts, as `read` gives them, when all values are there and well-formed; else None."""
        if not all(values):
            return None
        try:
            texts = [str(value, "utf-8") for value in values]  # type: ignore[arg-type]
        except UnicodeDecodeError:
            return None
        return None if any(text[0] == _BOM for text in texts) else texts


class JsonReader:
    """Values that are JSON objects with the text, and perhaps the event time, in a field.

    The last of duplicate keys wins; NaN and Infinity are accepted. Not JSON for this reader:
    nesting deeper than 200, an integer of more than 4,300 digits.
    """

    def __init__(self, value: ValueConfig) -> None:
        self._replace = value.on_invalid_utf8 == "replace"
        self._text = FieldPath(value.text_field)
        self._time = FieldPath(value.time_field) if value.time_field else None
        self._unit = value.time_unit

    def read_plain(self, values: Sequence[bytes | None]) -> list[str] | None:
        """None: each document has to be looked at."""
        return None

    def read(self, value: bytes, tallies: Counter[str]) -> tuple[str, int | None]:
        """The text and the event time in ms, None when the record's own is to be used.

        Raises Unusable.
        """
        try:
            document = from_json(value, cache_strings="keys")
        except ValueError:
            document = self._parse_again(value, tallies)
        text = self._text.find(document)
        if not isinstance(text, str):
            raise Unusable("no_text_field")
        if text[:1] == _BOM:
            text = text[1:]
        if self._time is None or not text:
            return text, None
        time_ms = parse_event_time_ms(self._time.find(document), self._unit)
        if time_ms is None:
            tallies["bad_time"] += 1
        return text, time_ms

    def _parse_again(self, value: bytes, tallies: Counter[str]) -> Any:
        """What stopped the parser was perhaps a byte order mark, bad UTF-8 or a lone surrogate."""
        found: Counter[str] = Counter()
        document = decode(value, self._replace, found)
        if not document:
            raise Unusable("empty")
        repaired = repair_surrogates(document)
        if repaired != document:
            found["replaced_surrogate"] += 1
        try:
            parsed = from_json(repaired, cache_strings="keys")
        except ValueError:
            raise Unusable("not_json") from None
        tallies.update(found)
        return parsed
