"""Special tokens of a tokenizer.json are hidden, so that text which looks like one stays text.

Each special token, and the model's unknown token, gets a secret name that no text can hold, in
the list of added tokens and in the model's vocabulary alike. All ids stay what they were, and every
engine that reads the document agrees by construction. (Taking the entries out would move the ids
of the added tokens behind them; `encode_special_tokens` of the library does not exist elsewhere,
and does not stop a unigram model that has "<s>" among its pieces.)
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]


@dataclass(frozen=True)
class HiddenDocument:
    """A tokenizer.json whose special tokens no text can name.

    Attributes:
        document: the JSON, without truncation, padding, post-processor and decoder.
        original_names: secret name -> what the token is really called.
        look_alikes: the contents of all added tokens, special or not.
    """

    document: Document
    original_names: dict[str, str]
    look_alikes: list[str]


def hide_special_tokens(document: Document) -> HiddenDocument:
    """A copy of `document` in which special tokens have secret names; added ones stay matched.

    Added tokens that are not marked special (say, code fences) are part of the vocabulary that
    text is meant to reach, and remain so.
    """
    added = document.get("added_tokens") or []
    secret = secrets.token_hex(16)
    special = [token["content"] for token in added if token.get("special")]
    special += _unknown_token(document["model"])
    aliases = {name: f"<hidden-{secret}-{n}>" for n, name in enumerate(dict.fromkeys(special))}
    hidden = {
        "version": document.get("version", "1.0"),
        "truncation": None,
        "padding": None,
        "added_tokens": [_hide_added(token, aliases) for token in added],
        "normalizer": document.get("normalizer"),
        "pre_tokenizer": document.get("pre_tokenizer"),
        "post_processor": None,
        "decoder": None,
        "model": _hide_model(document["model"], aliases),
    }
    return HiddenDocument(
        hidden,
        {alias: name for name, alias in aliases.items()},
        [token["content"] for token in added],
    )


def _unknown_token(model: Document) -> list[str]:
    if model.get("unk_id") is not None:
        return [model["vocab"][model["unk_id"]][0]]
    unknown = model.get("unk_token")
    return [unknown] if unknown else []


def _hide_added(token: Document, aliases: dict[str, str]) -> Document:
    alias = aliases.get(token["content"])
    if alias is None:
        return dict(token)
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {**token, **plain, "content": alias}


def _hide_model(model: Document, aliases: dict[str, str]) -> Document:
    hidden = dict(model)
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        hidden["vocab"] = {aliases.get(name, name): index for name, index in vocab.items()}
    else:
        hidden["vocab"] = [[aliases.get(piece, piece), score] for piece, score in vocab]
    if model.get("unk_token"):
        hidden["unk_token"] = aliases[model["unk_token"]]
    if "merges" in model:
        hidden["merges"] = _merges_without(model, aliases)
    return hidden


def _merges_without(model: Document, aliases: dict[str, str]) -> list[Any]:
    """The merges that neither use nor make a hidden token (hardly any do)."""
    prefix = model.get("continuing_subword_prefix") or ""
    kept = []
    for merge in model["merges"]:
        left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
        made = left + right.removeprefix(prefix)
        if left not in aliases and right not in aliases and made not in aliases:
            kept.append(merge)
    return kept
