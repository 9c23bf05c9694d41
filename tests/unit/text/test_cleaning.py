"""Golden table of the cleaner: one option at a time, then what they do together."""

from __future__ import annotations

import pytest

from streamfreq.config import TextConfig
from streamfreq.text import Cleaner

OFF = {"normalize": "none", "strip_control": False, "collapse_whitespace": False}
HTML = OFF | {"unescape_html": True}
CONTROL = OFF | {"strip_control": True}
SPACES = OFF | {"collapse_whitespace": True}

GOLDEN = [
    # normalization
    (OFF | {"normalize": "NFC"}, "cafe\u0301 ﬁ", "café ﬁ"),
    (OFF | {"normalize": "NFKC"}, "ﬁ Ａ１ ™", "fi A1 TM"),
    (OFF, "cafe\u0301", "cafe\u0301"),
    (
        OFF | {"normalize": "NFC"},
        "a" + "\u0323\u0301" * 40,
        "\u1ea1" + "\u0323" * 14 + "\u0301" * 15,
    ),
    # HTML entities
    (HTML, "AT&amp;T &lt;b&gt; &#20013;&#x6587; &nbsp;", "AT&T <b> 中文 \u00a0"),
    (HTML, "&amp;amp;lt;", "<"),
    (HTML, "a && b & c", "a && b & c"),
    (HTML, "&#xD800;|&#0;", "\ufffd|\ufffd"),
    (HTML, "&" + "amp;" * 14 + "lt;", "<"),
    (HTML, "x &" + "amp;" * 100 + "lt; y", "x " + "amp;" * 84 + "lt; y"),
    (OFF, "&amp;", "&amp;"),
    # control characters; ZWJ, ZWNJ and the bidirectional marks stay
    (CONTROL, "a\x00b\x1b[0m\x7f\x9fc\ufeffd", "ab[0mcd"),
    (CONTROL, "a\tb\r\n\x0b\x0c\x85", "a\tb\r\n\x0b\x0c\x85"),
    (
        CONTROL,
        "👩\u200d💻 می\u200cخواهم \u200fא ภาษา\u200bไทย",
        "👩\u200d💻 می\u200cخواهم \u200fא ภาษา\u200bไทย",
    ),
    (OFF, "a\x00b", "a\x00b"),
    # whitespace
    (SPACES, " \t a \u3000\u00a0 b\r\n", "a b"),
    (SPACES, " \n ", ""),
    (OFF, " a  b ", " a  b "),
    # lower case
    (OFF | {"lowercase": True}, "ΟΔΟΣ STRASSE ÇA", "οδος strasse ça"),
    (
        OFF | {"lowercase": True, "normalize": "NFC"},
        "\u0130\u0323",
        "i\u0323\u0307".replace("i\u0323", "ị"),
    ),
    # together
    ({}, "", ""),
    ({}, "Already clean, nothing to do.", "Already clean, nothing to do."),
    ({}, "已经 干净的文字。", "已经 干净的文字。"),
    ({}, "e\x00\u0301", "é"),
    ({}, "\ufeff\x00 \u200b", "\u200b"),
    ({"unescape_html": True}, "a&nbsp;&#9;b&#0;", "a b\ufffd"),
    ({"unescape_html": True}, "&a\x00mp;lt;", "<"),
    ({"unescape_html": True, "normalize": "NFKC"}, "＆amp;x", "&x"),
    ({"unescape_html": True, "lowercase": True}, "&Lt; &NBSP; &LT;", "≪ <"),
]


@pytest.mark.parametrize(("options", "text", "expected"), GOLDEN)
def test_golden(options: dict[str, object], text: str, expected: str) -> None:
    cleaner = Cleaner(TextConfig(**options))
    assert cleaner.clean(text) == expected
    assert cleaner.clean(expected) == expected


def test_batch_keeps_order_and_length() -> None:
    assert Cleaner(TextConfig()).clean_batch([" b ", "", "a"]) == ["b", "", "a"]
    assert Cleaner(TextConfig()).clean_batch([]) == []


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_every_code_point_is_stable(form: str, lowercase: bool) -> None:
    cleaner = Cleaner(TextConfig(normalize=form, lowercase=lowercase))
    # The first three planes and the specials; the rest is unassigned or private.
    codes = [*range(0xD800), *range(0xE000, 0x33480), *range(0xE0000, 0xE0200)]
    texts = [f"a{chr(code)}b" for code in codes]
    cleaned = cleaner.clean_batch(texts)
    assert cleaner.clean_batch(cleaned) == cleaned


@pytest.mark.parametrize("hostile", ["\u0301\u0323", "&amp;", "&#38;", "\u0344", "&a", "&"])
def test_hostile_repetition_ends_and_is_stable(hostile: str) -> None:
    cleaner = Cleaner(TextConfig(unescape_html=True, normalize="NFKC", lowercase=True))
    cleaned = cleaner.clean(hostile * 50_000)
    assert cleaner.clean(cleaned) == cleaned
