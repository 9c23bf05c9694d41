"""Small tokenizer files of every format, made on the spot for the tests."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<pad>"]
CODE_FENCE = "<code>"
"""An added token that is not special: text may reach it."""

TEXTS = [
    "The quick brown fox jumps over the lazy dog, and the dog doesn't mind.",
    "Streams never stop: news, chats, tickets, advisories; counts of yesterday are wrong today.",
    "What is rare today is common next week. It's the tail that we're after, isn't it?",
    "In 2023 the price rose by 12.5% to $1,234.50; in 2024 it fell 7%.",
    "def count(tokens):\n    return {t: tokens.count(t) for t in set(tokens)}\n",
    "深度学习模型的词频统计，今天罕见的词下周就会常见。",
    "新闻、聊天、工单：数据流永不停止。今天的热点是什么？",
    "naïve café, déjà vu, Ångström; Привет, мир! 😀👍🏽",
] * 3


def byte_level_bpe(folder: Path) -> Path:
    """tokenizer.json of a byte-level BPE with special tokens, one added token, padding and all."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        show_progress=False,
        special_tokens=SPECIALS[:1],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens(SPECIALS)
    tokenizer.add_tokens([CODE_FENCE])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    tokenizer.enable_padding(length=64)
    tokenizer.enable_truncation(8)
    return _save(tokenizer, folder)


def unigram(folder: Path) -> Path:
    """tokenizer.json of a unigram model whose pieces include its special tokens."""
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("▁", -3.0), ("▁the", -2.0)]
    pieces += [(character, -6.0) for character in "abcdefghijklmnopqrstuvwxyz<>/|.,!'"]
    pieces += [("ing", -4.0), ("he", -4.5), ("中文", -3.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return _save(tokenizer, folder)


def word_level(folder: Path) -> Path:
    """tokenizer.json of a word-level model split at spaces, so [PAD] stays in one piece."""
    words = ["[UNK]", "[PAD]", "the", "dog", "fox", "stream"]
    tokenizer = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken("[UNK]"), AddedToken("[PAD]", lstrip=True)])
    return _save(tokenizer, folder)


def bert_folder(folder: Path, settings: dict[str, Any] | None = None) -> Path:
    """A folder with only a vocab.txt (and a tokenizer_config.json when `settings` are given)."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "##s", "Dog", "cafe"]
    words += ["café", "深", "度", "##度", "[", "]", "cls", "CLS", "!", ",", "'"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def tiktoken_file(path: Path) -> Path:
    """A rank file: the 256 bytes, and some merges of English and Chinese."""
    merged = ["th", "the", " the", "in", "ing", " a", "er", "on", "12", "  ", "    ", "'s", "<|"]
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [token.encode() for token in merged] + [b"\xe4\xb8", "中".encode(), b"\xf0\x9f"]
    lines = (b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens))
    path.write_bytes(b"".join(lines))
    return path


def sentencepiece_model(
    path: Path, model_type: str, as_it_is: bool = False, symbols: Sequence[str] = (CODE_FENCE,)
) -> Path:
    """A trained .model (`bpe` with byte fallback, or `unigram` without) with user symbols.

    `as_it_is`: the text is not normalized and keeps its whitespace, as Llama's model has it.
    """
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=content,
        model_type=model_type,
        vocab_size=440 if model_type == "bpe" else 200,
        byte_fallback=model_type == "bpe",
        character_coverage=1.0,
        user_defined_symbols=list(symbols),
        hard_vocab_limit=False,
        normalization_rule_name="identity" if as_it_is else "nmt_nfkc",
        remove_extra_whitespaces=not as_it_is,
        minloglevel=2,
    )
    path.write_bytes(content.getvalue())
    return path


def _save(tokenizer: Tokenizer, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path
