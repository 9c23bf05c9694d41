from __future__ import annotations

from pathlib import Path

import pytest
import tiktoken_ext.openai_public as published

from streamfreq.config import TokenizerConfig
from streamfreq.tokenization import load_tokenizer
from streamfreq.tokenization.tiktoken import ENCODINGS, looks_like_ranks, parse_ranks
from tests.unit.tokenization import files


@pytest.mark.parametrize("name", list(ENCODINGS))
def test_the_split_rules_are_those_of_the_library(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for loader in ("load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks"):
        monkeypatch.setattr(published, loader, lambda *_, **__: {})
    encoding = published.ENCODING_CONSTRUCTORS[name]()
    rule = ENCODINGS[name]
    assert rule.pattern == encoding["pat_str"]
    assert rule.special == encoding["special_tokens"]
    size = encoding.get("explicit_n_vocab")
    if size is not None:
        assert max(rule.last_rank, *rule.special.values()) == size - 1


def test_the_configured_rule_goes_before_the_name(tmp_path: Path) -> None:
    path = files.tiktoken_file(tmp_path / "r50k_base.tiktoken")
    by_name = load_tokenizer(TokenizerConfig(path=str(path)))
    configured = load_tokenizer(TokenizerConfig(path=str(path), tiktoken_encoding="cl100k_base"))
    assert by_name.fingerprint != configured.fingerprint
    text = "1234512"
    shown = [
        [tokenizer.token_text(token_id) for token_id in tokenizer.encode_batch([text]).ids_N]
        for tokenizer in (by_name, configured)
    ]
    assert shown == [["12", "3", "4", "5", "12"], ["12", "3", "4", "5", "1", "2"]]


def test_special_ids_count_only_for_the_whole_encoding(tmp_path: Path) -> None:
    path = files.tiktoken_file(tmp_path / "cl100k_base.tiktoken")
    assert load_tokenizer(TokenizerConfig(path=str(path))).vocab_size == 272


def test_ranks_are_told_by_their_first_line() -> None:
    assert looks_like_ranks(b"IQ== 0\nIg== 1\n")
    for other in (b"", b"{}", b"\n", b"IQ==\n", b"IQ== x\n", b"a b c\n", b"\x0a\x09\x0a\x05<unk>"):
        assert not looks_like_ranks(other)


@pytest.mark.parametrize(
    ("tail", "reason"),
    [(b"YQ== 300\nYWI= 300\n", "twice"), (b"YWI= -5\n", "negative"), (b"?? 300\n", "base64")],
)
def test_ranks_that_contradict_each_other_are_refused(
    tail: bytes, reason: str, tmp_path: Path
) -> None:
    content = files.tiktoken_file(tmp_path / "x").read_bytes()
    with pytest.raises(ValueError, match=reason):
        parse_ranks(content + tail)
