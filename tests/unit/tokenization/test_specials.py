from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from streamfreq.tokenization.fingerprints import fingerprint, huggingface_parts
from streamfreq.tokenization.specials import hide_special_tokens
from tests.unit.tokenization import files

MAKERS = [files.byte_level_bpe, files.unigram, files.word_level]


def document_of(make: Any, folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(make(folder).read_bytes())
    return document


@pytest.mark.parametrize("make", MAKERS)
def test_every_token_keeps_its_id(make: Any, tmp_path: Path) -> None:
    document = document_of(make, tmp_path)
    hidden = hide_special_tokens(document)
    before = Tokenizer.from_str(json.dumps(document)).get_vocab()
    after = Tokenizer.from_str(json.dumps(hidden.document)).get_vocab()
    assert {hidden.original_names.get(token, token): n for token, n in after.items()} == before


@pytest.mark.parametrize("make", MAKERS)
def test_the_document_itself_is_left_alone(make: Any, tmp_path: Path) -> None:
    document = document_of(make, tmp_path)
    before = json.dumps(document)
    hide_special_tokens(document)
    assert json.dumps(document) == before


@pytest.mark.parametrize("make", MAKERS)
def test_no_special_id_is_reached_by_its_name(make: Any, tmp_path: Path) -> None:
    document = document_of(make, tmp_path)
    hidden = hide_special_tokens(document)
    tokenizer = Tokenizer.from_str(json.dumps(hidden.document))
    ids = Tokenizer.from_str(json.dumps(document)).get_vocab()
    for name in hidden.original_names.values():
        if name not in ("<unk>", "[UNK]"):
            assert ids[name] not in tokenizer.encode(f"{name} a{name}b {name}").ids


def test_secret_names_differ_from_load_to_load(tmp_path: Path) -> None:
    document = document_of(files.byte_level_bpe, tmp_path)
    names = [set(hide_special_tokens(document).original_names) for _ in range(2)]
    assert not names[0] & names[1]


def test_merges_that_make_a_special_token_are_dropped() -> None:
    vocab = {token: n for n, token in enumerate(["<", "s", ">", "<s", "<s>", "s>", "<unk>"])}
    merges = [["<", "s"], ["<s", ">"], ["s", ">"]]
    document = {
        "added_tokens": [{"id": 4, "content": "<s>", "special": True}],
        "model": {"type": "BPE", "vocab": vocab, "merges": merges, "unk_token": "<unk>"},
    }
    hidden = hide_special_tokens(document).document
    assert hidden["model"]["merges"] == [["<", "s"], ["s", ">"]]
    tokenizer = Tokenizer.from_str(
        json.dumps(hidden | {"added_tokens": [_complete(t) for t in hidden["added_tokens"]]})
    )
    assert 4 not in tokenizer.encode("<s>").ids
    spelled = {**document, "model": {**document["model"], "merges": ["< s", "<s >", "s >"]}}
    assert hide_special_tokens(spelled).document["model"]["merges"] == ["< s", "s >"]
    assert fingerprint("x", huggingface_parts(spelled)) == fingerprint(
        "x", huggingface_parts(document)
    )


def _complete(token: dict[str, Any]) -> dict[str, Any]:
    return {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False} | token


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "NFC"}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"added_tokens": []},
        {"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "b"}},
        {"model": {"type": "WordLevel", "vocab": {"a": 1, "b": 0}, "unk_token": "a"}},
    ],
)
def test_what_decides_about_ids_is_in_the_fingerprint(change: dict[str, Any]) -> None:
    document = {
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "added_tokens": [{"id": 0, "content": "a", "special": False}],
        "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"},
    }
    same = {"padding": {"x": 1}, "decoder": {"type": "Fuse"}, **document}
    del same["normalizer"]
    plain = fingerprint("huggingface", huggingface_parts(document))
    assert fingerprint("huggingface", huggingface_parts(same)) == plain
    assert fingerprint("tiktoken", huggingface_parts(document)) != plain
    assert fingerprint("huggingface", huggingface_parts({**document, **change})) != plain
