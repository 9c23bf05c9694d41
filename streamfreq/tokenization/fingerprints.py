"""Fingerprints: equal exactly when the vocabulary and the rules that make ids are the same.

A file that is only formatted otherwise, or differs in padding, truncation, post-processing or
decoding, has the same fingerprint; so has every engine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

RULE = 1
"""Version of "special tokens are text": another rule gives other counts, hence another value."""


def fingerprint(kind: str, parts: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of `kind`, the rule's version, and `parts` as canonical JSON.

    >>> fingerprint("words", {"a": 1, "b": 2}) == fingerprint("words", {"b": 2, "a": 1})
    True
    """
    document = {"kind": kind, "special_tokens_as_text": RULE, "parts": parts}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def bytes_digest(content: bytes) -> str:
    """SHA-256 (hex) of a file's content."""
    return hashlib.sha256(content).hexdigest()


def huggingface_parts(document: Mapping[str, Any]) -> dict[str, Any]:
    """What of a tokenizer.json decides about ids, in one spelling.

    Absent and null are the same; merges written as "a b" and as ["a", "b"] are the same.
    """
    model = _without_null(document["model"])
    if "merges" in model:
        model["merges"] = [
            merge.split(" ", 1) if isinstance(merge, str) else merge for merge in model["merges"]
        ]
    added = [_without_null(token) for token in document.get("added_tokens") or []]
    return {
        "normalizer": _without_null(document.get("normalizer")),
        "pre_tokenizer": _without_null(document.get("pre_tokenizer")),
        "model": model,
        "added_tokens": sorted(added, key=lambda token: int(token["id"])),
    }


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    return value
