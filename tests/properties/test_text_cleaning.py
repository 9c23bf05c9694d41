"""Laws of cleaning, for every combination of options."""

from __future__ import annotations

import itertools
from unicodedata import category, is_normalized

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


@given(TEXTS)
@settings(deadline=None)
@example(" a")
@example("a ")
@example("a\n\nb\nc\n")
@example("a\n \nb")
@example("\x1fa\x1f")
def test_the_fast_path_is_the_slow_path(text: str) -> None:
    for options, cleaner in CLEANERS:
        assert cleaner.clean(text) == cleaner._repeat(text), options


ASCII = st.lists(
    st.sampled_from(["", " ", "  ", "\n", "a", "A b", "\x00", "\x1c", "\x7f", "&lt;", "&"])
    | st.text(st.characters(max_codepoint=127), max_size=4),
    max_size=5,
).map("".join)


@given(st.lists(ASCII | TEXTS, max_size=8))
@settings(deadline=None)
def test_a_batch_is_cleaned_as_each_of_its_texts(texts: list[str]) -> None:
    for options, cleaner in CLEANERS:
        assert cleaner.clean_batch(texts) == [cleaner.clean(text) for text in texts], options
