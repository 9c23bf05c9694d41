"""The texts on which a fast engine must agree with the reference before it is trusted.

Fixed texts for what tokenizers are known to disagree on, every special and added token as a user
might write it, and random strings over many scripts, the same in every process.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

_FIXED = (
    "",
    " ",
    "a",
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog.",
    "it's we're I'll you've he'd I'm don't IT'S WE'RE I'LL 'tis '' ' s 's",
    "it’s we’re don’t “quoted” ‘single’ – — … • ™ © ® § ¶ † ‡ ‰",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    "!!! ??? ... --- *** ___ ((())) [[[]]] {{{}}} <<<>>> ;;; ,,, :::",
    "0 1 12 123 1234 12345 123456 1234567 1234567890123456789012345678901234567890",
    "3.14 1,000,000 -5 +7 1e10 0x1F 1st 2nd 50% $9.99 €5 ½ ² ³ ¹⁰ Ⅷ ١٢٣ १२३ ௧ ४५६ 一二三 ①②",
    "v1.2.3-rc.4 CVE-2021-44228 192.168.0.1 2001:db8::1 user.name+tag@example.org",
    "https://example.org/a/b?c=d&e=%20f#g http://例え.jp/",
    "x--y __init__ snake_case camelCaseHTTPServer",
    "def f(x):\n\treturn {'a': [1, 2, 3], \"b\": None}  # comment\n\n\n"
    "if __name__ == '__main__':\n    f(0)\n",
    "for(int i=0;i<n;++i){a[i]+=b[i]&0xff;}\r\n\r\n// done\r#include <stdio.h>\n",
    '<div class="a">&amp;&lt;&#39;</div><br/>\n\n```python\nprint("x")\n```\n| a | b |\n|---|---|',
    " leading",
    "trailing ",
    "  two  spaces  ",
    "\t\ttabs\t\tand \t mixed\n \n  \n\n   x\n",
    "\n",
    "\n\n\n",
    "\r\n\r\n \r\n",
    "a\u00a0b\u2003c\u2009d\u200be\u3000f\u202fg\u205fh\u1680i\u2028j\u2029k\x85l\x0bm\x0cn",
    " " * 3 + "x" + " " * 17 + "y" + " " * 64 + "z" + " " * 130,
    "\n" * 40 + "\t" * 40 + " \n" * 20,
    "a" * 300,
    "ab" * 500,
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft" * 3,
    "x" * 2000 + " " + "ü" * 700 + " " + "中" * 700,
    "=" * 100 + "-" * 100 + "." * 100 + "#" * 100 + "!" * 100,
    "naïve café résumé Ångström Øre straße İstanbul ıI ﬁ ﬂ ﬃ Ǆ ǅ ǆ",
    "e\u0301 a\u030a n\u0303 o\u0308\u0304 Z\u0351\u036b\u0343\u036a\u0302A\u0334\u0335",
    "\u0301 \u0301x \u0483 \u20dd1\u20e3",
    "Ελληνικά Кириллица українська ქართული Հայերեն עברית שָׁלוֹם",
    "العربية مُحَمَّد لا إله ﷺ ـــ فارسی کتاب‌ها اردو",
    "हिन्दी क्षत्रिय বাংলা தமிழ் తెలుగు ಕನ್ನಡ മലയാളം සිංහල ไทยภาษา ລາວ ខ្មែរ မြန်မာ བོད་",
    "中文没有空格，标点。“引号”《书名》、；：？！（括号）【】…—·",
    "深度学习2023年AI模型GPT-4发布了 繁體中文測試 𠀀𠮷𪚥 㐀䶵 豈更 々〆〇",
    "日本語のテキスト カタカナ ひらがな ｶﾀｶﾅ ＡＢＣ１２３ ー〜 한국어 텍스트 ㄱㄴㄷ 조합",
    "😀 😃😄 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇨🇳 1️⃣ ❤️ ☺ ♥ ✈️ 🧑🏿‍🚀 🫠 ",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "\ufffd \ufffd\ufffd a\ufffdb \ufffd\ufffd\ufffd中\ufffd",
    "\ufeffbom \u200d\u200c\u200e\u200f\u2060\u00ad \ufff9\ufffb \ufdd0 \uffff",
    "\U0010ffff \ue000\uf8ff",
    "\x00 \x01\x02\x03 \x04\x05 \x1b[31m \x7f \x80\x9f a\x00b",
    "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋ ∑∫√∞ ≠≤≥ α∧¬β ⇒ γ ℵ₀ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚 ㎏ ℃ №",
    "▁ ▁▁ a▁b Ġ Ċ ĠĠ ## ##ing <0x41> <0xE4> </w> ▁▁▁▁x",
    "[CLS] [SEP] [UNK] [PAD] [MASK] [INST] [/INST] <<SYS>> <s> </s> <unk> <pad> <mask> <bos> <eos>",
    "<|endoftext|><|im_start|>user\nhi<|im_end|> <|fim_prefix|> <|endofprompt|> <|eot_id|> <|EOT|>",
    "<｜begin▁of▁sentence｜>x<｜end▁of▁sentence｜><｜User｜>y<｜Assistant｜>",
    "< |endoftext|> <|endoftext| > <|ENDOFTEXT|> <|endof\u200btext|> |endoftext|>",
    "<<|endoftext|>>",
    "new in Unicode 17: a\u1acfb a\u20c1 .\u2b96. 1\U0001f8d0 \u1ae0",
    "\U0001f8d6 \u0301x \U0001faea \U000323b0",
    "new in Unicode 16: a\u1c89b \U0001fae9 \u1897 \U00010d4a1 \U0001cc00 \u0301x \U0001e5d0",
    "new in Unicode 15: a\U0001fae8b \U0001faf7 \u0cf3x \U00011f00 \U0001e030 \U00031350 \u2ffc",
    "MASS SHOOTING  BREAKING:Breaking news!!!1! #hashtag @user RT @a: b/c w/o 24/7 AT&T C++ .NET",
)

_RANGES = (
    (0x20, 0x7E),
    (0x20, 0x7E),
    (0x61, 0x7A),
    (0x00, 0x1F),
    (0x80, 0x24F),
    (0x250, 0x36F),
    (0x370, 0x52F),
    (0x590, 0x6FF),
    (0x900, 0xDFF),
    (0xE00, 0xFFF),
    (0x1100, 0x11FF),
    (0x2000, 0x206F),
    (0x2070, 0x2BFF),
    (0x3000, 0x30FF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0xE000, 0xE0FF),
    (0xF900, 0xFFFF),
    (0x10000, 0x10FFF),
    (0x1F300, 0x1FAFF),
    (0x20000, 0x2FFFF),
    (0x100000, 0x10FFFF),
)
_SEPARATORS = (" ", " ", " ", "", "", "  ", "\n", "\t", "'", ".", ", ", "-", "\r\n")


def probe_texts(look_alikes: Sequence[str] = (), random_texts: int = 400) -> list[str]:
    """The fixed texts, each of `look_alikes` within text, and seeded random strings."""
    guarded = [
        text for token in look_alikes for text in (token, f"x{token} y", f" {token}\n{token}")
    ]
    return [*_FIXED, *guarded, *random_strings(random_texts)]


def random_strings(count: int, seed: int = 20240229) -> list[str]:
    """`count` strings of mixed scripts without surrogates, the same for a seed everywhere.

    >>> random_strings(3) == random_strings(3)
    True
    """
    generator = random.Random(seed)
    return [_random_string(generator) for _ in range(count)]


def _random_string(generator: random.Random) -> str:
    parts: list[str] = []
    for _ in range(generator.randrange(1, 12)):
        first, last = generator.choice(_RANGES)
        length = generator.randrange(1, 9)
        parts.extend(chr(generator.randint(first, last)) for _ in range(length))
        parts.append(generator.choice(_SEPARATORS))
    return "".join(parts)
