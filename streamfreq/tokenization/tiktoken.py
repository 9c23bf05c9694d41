"""`.tiktoken` rank files, by the tiktoken library or gigatoken.

A rank file holds byte sequences and ranks only; the split rule comes from the file's name or from
the configuration. Special tokens are never matched; their ids belong to the vocabulary when the
file holds the whole encoding.
"""

from __future__ import annotations

import base64
import binascii
import functools
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamfreq.config import TokenizerConfig
from streamfreq.errors import ConfigError
from streamfreq.tokenization.engines import TiktokenEngine, one_line
from streamfreq.tokenization.fingerprints import bytes_digest, fingerprint
from streamfreq.tokenization.gigatoken import choose_engine
from streamfreq.tokenization.subword import SubwordTokenizer, Vocabulary, bytes_text


@dataclass(frozen=True)
class SplitRule:
    """What belongs to an encoding besides its rank file.

    Attributes:
        pattern: the regular expression that splits text before merging.
        scheme: gigatoken's name of the same rule.
        last_rank: the largest rank of the encoding's own file.
        special: its special tokens and their ids.
    """

    pattern: str
    scheme: str
    last_rank: int
    special: dict[str, int] = field(default_factory=dict)


_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_END = {"<|endoftext|>": 50256}
_FILL_IN = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")

ENCODINGS: dict[str, SplitRule] = {
    "gpt2": SplitRule(_GPT2, "gpt2", 50255, _END),
    "r50k_base": SplitRule(_GPT2, "gpt2", 50255, _END),
    "p50k_base": SplitRule(_GPT2, "gpt2", 50280, _END),
    "p50k_edit": SplitRule(
        _GPT2, "gpt2", 50280, {**_END, **{name: 50281 + n for n, name in enumerate(_FILL_IN)}}
    ),
    "cl100k_base": SplitRule(
        _CL100K,
        "gpt4",
        100255,
        {
            "<|endoftext|>": 100257,
            **{name: 100258 + n for n, name in enumerate(_FILL_IN)},
            "<|endofprompt|>": 100276,
        },
    ),
    "o200k_base": SplitRule(
        _O200K, "o200k", 199997, {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}
    ),
}
"""The published encodings (openai/tiktoken, tiktoken_ext/openai_public.py)."""


def load_tiktoken(path: Path, name: str, config: TokenizerConfig) -> SubwordTokenizer:
    """The tokenizer of a rank file; raises ConfigError for a damaged one or an unknown rule."""
    import tiktoken

    rule = _split_rule(path, config)
    try:
        content = path.read_bytes()
        ranks = parse_ranks(content)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"tokenizer.path: {path} can't be read as a .tiktoken file: {one_line(error)};"
            " fetch the file again"
        ) from error
    special = rule.special if max(ranks.values()) == rule.last_rank else {}
    encoding = tiktoken.Encoding(
        name, pat_str=rule.pattern, mergeable_ranks=ranks, special_tokens={}
    )
    engine = choose_engine(
        config,
        TiktokenEngine(encoding, config.threads),
        functools.partial(_gigatoken, content, rule.scheme),
        list(rule.special),
    )
    texts = {rank: bytes_text(token) for token, rank in ranks.items()}
    texts.update((index, token) for token, index in special.items())
    size = 1 + max(texts)
    mark = fingerprint(
        "tiktoken", {"file": bytes_digest(content), "pattern": rule.pattern, "size": size}
    )
    return SubwordTokenizer(name, engine, Vocabulary(size, texts), mark)


def parse_ranks(content: bytes) -> dict[bytes, int]:
    """Byte sequence -> rank, from lines of base64 and a number; raises ValueError.

    >>> parse_ranks(b"YQ== 0\\nYg== 1\\n" + b"".join(
    ...     base64.b64encode(bytes([b])) + b" %d\\n" % (b + 2) for b in range(256) if b not in b"ab"
    ... ))[b"b"]
    1
    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line:
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise ValueError(f"line {number} is not base64 and a number") from None
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise ValueError(
            f"it lacks {len(missing)} of the 256 single bytes, 0x{missing[0]:02x} first"
        )
    if len(set(ranks.values())) != len(ranks) or min(ranks.values()) < 0:
        raise ValueError("a rank is negative or given twice")
    return ranks


def looks_like_ranks(start: bytes) -> bool:
    """Whether a file that begins with `start` is a rank file, whatever its name."""
    parts = start.split(b"\n", 1)[0].split()
    if len(parts) != 2 or not parts[1].isdigit():
        return False
    try:
        base64.b64decode(parts[0], validate=True)
    except (ValueError, binascii.Error):
        return False
    return True


def _split_rule(path: Path, config: TokenizerConfig) -> SplitRule:
    wanted = config.tiktoken_encoding or path.name.removesuffix(".tiktoken")
    if wanted in ENCODINGS:
        return ENCODINGS[wanted]
    field_name = "tokenizer.tiktoken_encoding" if config.tiktoken_encoding else "tokenizer.path"
    raise ConfigError(
        f"{field_name}: {wanted} is no known encoding, and {path} carries no split rule;"
        f" set tokenizer.tiktoken_encoding to one of {', '.join(ENCODINGS)}"
    )


def _gigatoken(content: bytes, scheme: str) -> Any:
    """gigatoken reads ranks only from a file; the user's own may have changed since the start."""
    import gigatoken

    with tempfile.NamedTemporaryFile(suffix=".tiktoken") as file:
        file.write(content)
        file.flush()
        return gigatoken.Tokenizer.from_tiktoken(file.name, pretokenizer=scheme, special_tokens={})
