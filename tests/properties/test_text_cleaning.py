"""Laws of cleaning, for every combination of options."""

from __future__ import annotations

import itertools
from unicodedata import category, is_normalized

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamfreq.config import TextConfig
from streamfreq.text import Cleaner

FLAGS = ("unescape_html", "strip_control", "collapse_whitespace", "lowercase")
CLEANERS = [
    (options, Cleaner(options))
    for form in ("NFC", "NFKC", "none")
    for flags in itertools.product((False, True), repeat=len(FLAGS))
    for options in [TextConfig(normalize=form, **dict(zip(FLAGS, flags, strict=True)))]
]

ENTITIES = [
    *("&amp;", "&", "amp;", "&#38;", "#x26;", "lt", ";", "&AMP", "&not", "&nvlt;", "&#0;"),
    *("&#x80;", "&#xD800;", "＆", "﹠", "A&B"),
]
LETTERS = [*"eİΣﬁ™´한が𝐀\u212bǅẞ中😀", "ΑΣ", "\u1100\u1161", "か\u3099"]
INVISIBLE = list("\x00\x1f\ufeff\u200d\u200c\x85\t \u3000\u00a0\u0301\u0323\u0338\u0345\u0344")
FRAGMENTS = st.sampled_from([*ENTITIES, *LETTERS, *INVISIBLE])
TEXTS = st.lists(FRAGMENTS | st.text(max_size=4), max_size=12).map("".join)


@given(TEXTS)
@settings(deadline=None, max_examples=300)
@example("&" + "amp;" * 40)
@example("e\x00\u0301")
@example("a" + "\u0323\u0301" * 40)
@example("a" + "\u0344\u0323" * 40)
def test_idempotent_and_as_promised(text: str) -> None:
    for options, cleaner in CLEANERS:
        cleaned = cleaner.clean(text)
        assert cleaner.clean(cleaned) == cleaned, options
        if options.strip_control:
            kept = "\t\n\x0b\x0c\r\x85"
            assert not any(category(c) == "Cc" and c not in kept for c in cleaned), options
        if options.collapse_whitespace:
            assert cleaned == " ".join(cleaned.split()), options
        if options.normalize != "none":
            assert is_normalized(options.normalize, cleaned), options
        if options.lowercase:
            assert cleaned.lower() == cleaned, options


@given(TEXTS)
@settings(deadline=None)
def test_nothing_configured_changes_nothing(text: str) -> None:
    off = TextConfig(normalize="none", strip_control=False, collapse_whitespace=False)
    assert Cleaner(off).clean(text) == text


@pytest.mark.parametrize("lowercase", [False, True])
@given(text=TEXTS)
@settings(deadline=None)
def test_the_fast_path_is_the_slow_path(lowercase: bool, text: str) -> None:
    # A text behind a line break never takes the fast path.
    cleaner = Cleaner(TextConfig(lowercase=lowercase, unescape_html=True))
    assert cleaner.clean("\n" + text) == cleaner.clean(text)
