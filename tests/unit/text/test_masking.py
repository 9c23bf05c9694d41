"""Golden table of masking: what each kind takes and what it leaves, in English and Chinese text."""

from __future__ import annotations

import pytest

from streamfreq.config import TextConfig
from streamfreq.text import Cleaner, Masker
from streamfreq.text.masking import PLACEHOLDERS

ALL = list(PLACEHOLDERS)

MASKED = [
    # url
    ("see https://example.com/a?b=c#d.", "see [url]."),
    ("(https://en.wikipedia.org/wiki/Foo_(bar))", "([url])"),
    ("[docs](https://example.com/x), [b](http://b.io)", "[docs]([url]), [b]([url])"),
    ("请看https://example.com/abc查看，谢谢", "请看[url]查看，谢谢"),
    ("点http://例子.中国/路 好", "点[url]路 好"),
    ("http://localhost:8080/x and ftp://joe:pw@host/f", "[url] and [url]"),
    ("HTTP://[2001:db8::1]:80/ ok", "[url] ok"),
    ("visit www.example.co.uk, or WWW.Example.org/a", "visit [url], or [url]"),
    ("https://ru.wikipedia.org/wiki/Москва!", "[url]!"),
    ("http://a.io/?u=joe@example.com&ip=1.2.3.4", "[url]"),
    ("**https://example.com/**", "**[url]**"),
    # email
    ("mail joe.doe+tag@mail.example.co.uk now", "mail [email] now"),
    ("邮箱joe@example.com请联系", "邮箱[email]请联系"),
    ("<JOE@EXAMPLE.COM>, 'a_b@x.org'.", "<[email]>, '[email]'."),
    ("mailto:joe@example.com...joe@example.com", "mailto:[email]...[email]"),
    ("café@exämple.fr", "[email]"),
    ("git@github.com:foo/bar.git", "[email]:foo/bar.git"),
    ("a@xn--fiqs8s.xn--fiqs8s", "[email]"),
    # ip
    ("from 192.168.1.10:8080 and 10.0.0.0/8.", "from [ip]:8080 and [ip]/8."),
    ("服务器10.1.2.3上", "服务器[ip]上"),
    ("[::1], fe80::1%eth0, 2001:db8:0:0:0:0:0:1", "[[ip]], [ip], [ip]"),
    ("::ffff:10.0.0.1 to 64:ff9b::/96", "[ip] to [ip]/96"),
    ("fixed in 2.0.0.1", "fixed in [ip]"),  # a version of four parts is an IPv4 address too
    # card
    ("card 4111 1111 1111 1111, exp 12/26", "card [card], exp 12/26"),
    ("5500-0000-0000-0004 3782 822463 10005", "[card] [card]"),
    ("卡号6222021234567890128谢谢", "卡号[card]谢谢"),
    ("付款4111111111111111。", "付款[card]。"),
    ("4000 4111 1111 1111 1111", "4000 [card]"),
    ("4111 1111 1111 1111 5500 0000 0000 0004", "[card] [card]"),
    ("30569309025904, 3530111333300000, 6011111111111117", "[card], [card], [card]"),
    # cn_id
    ("身份证11010519491231002X号", "身份证[cn_id]号"),
    ("id 11010519491231002x.", "id [cn_id]."),
    ("110105 19491231 002X", "[cn_id]"),
    # iban
    ("IBAN DE89 3704 0044 0532 0130 00 and more words", "IBAN [iban] and more words"),
    ("GB29NWBK60161331926819, fr1420041010050500013m02606", "[iban], [iban]"),
    ("账号DE89370400440532013000请", "账号[iban]请"),
    ("MT84 MALT 0110 0001 2345 MTLC AST0 01S", "[iban]"),
    # phone
    ("call +1 (202) 555-0173 today", "call [phone] today"),
    ("call 202-555-0173 ext. 12.", "call [phone]."),
    ("(202) 555-0173 or 202.555.0173", "[phone] or [phone]"),
    ("London 020 7946 0958; Berlin 030/1234567", "London [phone]; Berlin [phone]"),
    ("+49 151 12345678, +8613812345678", "[phone], [phone]"),
    ("电话13812345678请拨", "电话[phone]请拨"),
    ("手机138-1234-5678、139 1234 5678", "手机[phone]、[phone]"),
    ("13812345678,13912345678", "[phone],[phone]"),
    ("座机010-65541234", "座机[phone]"),
    ("＋86 13812345678", "[phone]"),
    ("2021-12-10 13812345678", "2021-12-10 [phone]"),
]

KEPT = [
    "",
    "No personal data here, only 42 words and a time of 12:30:45.",
    "这里没有个人数据，只有25岁和2020年11月6日。",
    "CVE-2021-44228 and CVE-2022-1234567, GHSA-jfh8-c2jp-5v3q",
    "released 2021-12-10, 10/12/2021, 10.12.2021 and 2021/12/10",
    "2021-12-10T12:30:45Z 2021-12-10 12:30 20211210 123045 20211210T123045.123+01:00",
    "07 24 2022 and 2023 01 23 and 09062030",
    "from 2019-2020 to 2020-2021, pages 20000-21150, 10 000 20 000 people",
    "ts 1604686251000, 1604686251, 1604686251123456",
    "v1.2.3.4 1.2.3 1.2.3.4-rc1 1.2.3.4.5 256.1.1.1 86.0.4240.198 10.0.19041.1288",
    "3.141592653589 and 2.718281828 and 2147483647 and 4294967296",
    "std::vector a::b ::x Foo::Bar :: dead::beef 00:1a:2b:3c:4d:5e 12:34:56",
    "lodash@4.17.21 @angular/core user@localhost @ a@b joe@example.c0m",
    "http:// https:/x www. www.x wwww.example.com example.com",
    "卡号6222021234567890129 4111 1111 1111 1112 and 1234567812345670 and a4111111111111111",
    "110105194912310021 and 110105194913310029 and 99999919491231002X",
    "DE89370400440532013001 XX89370400440532013000 ab12 the quick brown fox jumps",
    "sha 55a97caa9e99c7f37a0bbbeb414dc55553d3ae7f 1234567890abcdef",
    "9223372036854775807 18446744073709551615 978-3-16-148410-0 9783161484100",
    "1 2 3 4 5 6 7 8 9 10 11 12",
    "[email] [phone] [url] [ip] [card] [cn_id] [iban]",
]


@pytest.mark.parametrize(("text", "expected"), MASKED)
def test_masked(text: str, expected: str) -> None:
    masker = Masker(TextConfig(mask=ALL))
    assert masker.mask(text) == expected
    assert masker.mask(expected) == expected
    assert masker.mask_batch(["", text, "x", text]) == ["", expected, "x", expected]


@pytest.mark.parametrize("text", KEPT)
def test_kept(text: str) -> None:
    masker = Masker(TextConfig(mask=ALL))
    assert masker.mask(text) == text
    assert masker.mask_batch([text]) == [text]


@pytest.mark.parametrize("kind", ALL)
def test_only_what_is_configured(kind: str) -> None:
    text = (
        "http://a.io joe@x.com DE89370400440532013000 11010519491231002X "
        "4111111111111111 10.0.0.1 +12025550173"
    )
    masked = Masker(TextConfig(mask=[kind])).mask(text)
    assert [PLACEHOLDERS[other] in masked for other in ALL] == [other == kind for other in ALL]


def test_phones_of_other_regions_need_a_plus() -> None:
    masker = Masker(TextConfig(mask=["phone"], phone_regions=["fr"]))
    assert masker.mask("01 42 68 53 00") == "[phone]"
    assert masker.mask("01.42.68.53.00, 202-555-0173") == "[phone], 202-555-0173"
    assert masker.mask("+1 202-555-0173") == "[phone]"
    nowhere = Masker(TextConfig(mask=["phone"], phone_regions=[]))
    assert nowhere.mask("+1 202-555-0173 and 202-555-0173") == "[phone] and 202-555-0173"


def test_placeholders_survive_cleaning() -> None:
    text = " ".join(PLACEHOLDERS.values())
    for form in ("NFC", "NFKC", "none"):
        cleaner = Cleaner(TextConfig(normalize=form, lowercase=True, unescape_html=True))
        assert cleaner.clean(text) == text
        # nothing composes with a placeholder, and no entity can begin before one
        for following in ("\u0301", "\u0338", "amp;"):
            assert cleaner.clean(f"&a{text}{following}") == f"&a{text}{following}"


def test_a_batch_is_its_texts_one_by_one_also_beyond_a_chunk() -> None:
    masker = Masker(TextConfig(mask=ALL))
    texts = [text for text, _ in MASKED] + KEPT + ["中" * 700_000 + "10.0.0.1", "x" * 1_100_000]
    assert masker.mask_batch(texts) == [masker.mask(text) for text in texts]
    assert masker.mask_batch([]) == []


def test_without_kinds_nothing_changes() -> None:
    texts = [text for text, _ in MASKED]
    masker = Masker(TextConfig(mask=[]))
    assert masker.mask_batch(texts) == texts == [masker.mask(text) for text in texts]
