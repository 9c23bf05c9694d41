"""Encoders made of the reference libraries alone, and the pairs of stream and tokenizer to try."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

Encoder = Callable[[Sequence[str]], list[list[int]]]

PAIRS = [
    ("hn_frontpage", "gpt2"),
    ("topnews_en", "smollm2"),
    ("security_advisories", "bert-en"),
    ("zhihu_hot", "deepseek"),
    ("zhihu_hot", "bert-zh"),
    ("zhihu_hot", "chinese-sp"),
    ("security_advisories", "deepseek"),
]
"""Each stream and each tokenizer at least once; no smollm2 for Chinese."""


def reference_encoder(path: Path) -> Encoder:
    """Encodes with `tokenizers` or `sentencepiece`, special tokens taken as text."""
    models = sorted(path.glob("*.model"))
    if models:
        import sentencepiece

        processor = sentencepiece.SentencePieceProcessor(model_file=str(models[0]))
        return lambda texts: [processor.encode(text) for text in texts]
    return _huggingface(path)


def _huggingface(path: Path) -> Encoder:
    from tokenizers import BertWordPieceTokenizer, Tokenizer

    if (path / "tokenizer.json").exists():
        tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    else:
        tokenizer = BertWordPieceTokenizer(str(path / "vocab.txt"), lowercase=True)._tokenizer
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True
    return lambda texts: [
        encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)
    ]
