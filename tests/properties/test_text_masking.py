"""Laws of masking: idempotent, nothing left to find, alone and together with cleaning."""

from __future__ import annotations

import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamfreq.config import TextConfig
from streamfreq.text import Cleaner, Masker
from streamfreq.text.masking import PLACEHOLDERS

ALL = list(PLACEHOLDERS)
MASKER = Masker(TextConfig(mask=ALL))
ALONE = [Masker(TextConfig(mask=[kind])) for kind in ALL]

WEB = [
    *("https://example.com/a_(b)", "www.example.org", "http://[::1]/", "ftp://a", "http://"),
    *("joe@example.com", "a.b+c@x-y.org", "joe@", "@x.com", "1.2.3.4", "10.0.0.1", "::1"),
    *("fe80::1", "2001:db8:0:0:0:0:0:1"),
]
NUMBERS = [
    *("4111 1111 1111 1111", "5500-0000-0000-0004", "378282246310005", "11010519491231002X"),
    *("110105 19491231 002X", "DE89 3704 0044 0532 0130 00", "GB29NWBK60161331926819"),
    *("+1 202-555-0173", "13812345678", "020 7946 0958", "(202) 555-0173", "2021-12-10"),
    *("12:30:45", "CVE-2021-44228", "0", "19", "2020", "000", "1111", "DE89", "3704"),
]
BETWEEN = [
    *",.:-/()[]<>@+_%#&;xX号请，é＋…\u0338\u0301\t\n ",
    *(" ext. 5", "&amp;", *PLACEHOLDERS.values()),
]
FRAGMENTS = st.sampled_from(WEB) | st.sampled_from(NUMBERS) | st.sampled_from(BETWEEN)
TEXTS = st.lists(FRAGMENTS | st.text(max_size=3), max_size=16).map("".join)


@given(TEXTS)
@settings(deadline=None, max_examples=400)
@example("4111 1111 1111 1111" * 3)
@example("a1.2.3.4joe@example.com")
@example("+" * 3 + "13812345678" * 2)
def test_idempotent_and_nothing_left(text: str) -> None:
    for masker in (MASKER, *ALONE):
        masked = masker.mask(text)
        assert masker.mask(masked) == masked
        for kind, detector in masker.detectors.items():
            assert list(detector.find(masked)) == [], kind


@given(st.lists(TEXTS, max_size=5))
@settings(deadline=None, max_examples=200)
def test_a_batch_is_its_texts_one_by_one(texts: list[str]) -> None:
    for masker in (MASKER, *ALONE):
        assert masker.mask_batch(texts) == [masker.mask(text) for text in texts]


@given(TEXTS)
@settings(deadline=None, max_examples=200)
def test_spans_are_ordered_and_tight(text: str) -> None:
    for detector in MASKER.detectors.values():
        end = 0
        for start, stop in detector.find(text):
            assert end <= start < stop <= len(text)
            assert text[start:stop] == text[start:stop].strip()
            end = stop


FLAGS = ("unescape_html", "strip_control", "collapse_whitespace", "lowercase")
PIPELINES = [
    (Cleaner(options), Masker(options), options)
    for form in ("NFC", "NFKC", "none")
    for flags in itertools.product((False, True), repeat=len(FLAGS))
    for options in [TextConfig(normalize=form, mask=ALL, **dict(zip(FLAGS, flags, strict=True)))]
]


@given(TEXTS)
@settings(deadline=None, max_examples=60)
@example("joe@example.com\u0338 &joe@example.com")
def test_clean_then_mask_is_idempotent_together(text: str) -> None:
    for cleaner, masker, options in PIPELINES:
        prepared = masker.mask(cleaner.clean(text))
        assert cleaner.clean(prepared) == prepared, options
        assert masker.mask(prepared) == prepared, options
