"""From a configured path to a tokenizer: what kind it is, and which module reads it."""

from __future__ import annotations

import os
from pathlib import Path

from streamfreq.config import TokenizerConfig
from streamfreq.errors import ConfigError
from streamfreq.tokenization.base import Tokenizer

WORDS = "words"

_FOLDER_FILES = ("tokenizer.json", "vocab.txt", "*.model", "*.tiktoken")
_FORMATS = "tokenizer.json, vocab.txt, a SentencePiece .model or a .tiktoken file"


def load(config: TokenizerConfig) -> Tokenizer:
    """The tokenizer of `config`; see `streamfreq.tokenization.load_tokenizer`."""
    if config.kind == WORDS or (config.kind == "auto" and config.path == WORDS):
        from streamfreq.tokenization.words import load_words

        return load_words(config)
    limit_threads(config.threads)
    path = _locate(config)
    return _load_file(path, _kind(path, config), config)


def limit_threads(threads: int) -> None:
    """Let the Rust libraries use `threads` threads (0: all cores).

    Their pools read the environment once, at the first parallel call of the process; what the user
    set there stays. One thread means the calling one.
    """
    if threads == 1:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    elif threads > 1:
        os.environ.setdefault("RAYON_NUM_THREADS", str(threads))


def _load_file(path: Path, kind: str, config: TokenizerConfig) -> Tokenizer:
    name = _name(path, config)
    if kind == "sentencepiece":
        from streamfreq.tokenization.sentencepiece import load_sentencepiece

        return load_sentencepiece(path, name, config)
    if kind == "tiktoken":
        from streamfreq.tokenization.tiktoken import load_tiktoken

        return load_tiktoken(path, name, config)
    from streamfreq.tokenization import huggingface

    if path.suffix == ".txt":
        return huggingface.load_bert_vocabulary(path, name, config)
    return huggingface.load_tokenizer_json(path, name, config)


def _locate(config: TokenizerConfig) -> Path:
    """The tokenizer's file: the path itself, the one in a folder, or a copy from the hub."""
    path = Path(config.path).expanduser()
    try:
        if path.is_dir():
            return _in_folder(path)
        if path.exists():
            return path
    except OSError as error:
        raise ConfigError(f"tokenizer.path: {path} can't be opened ({error.strerror})") from error
    from streamfreq.tokenization.huggingface import HUB_NAME, fetch_from_hub

    # models/typo is no hub name where there is a folder models; asking the hub takes long to fail.
    beside = path.parent != Path() and path.parent.is_dir()
    local = beside or path.suffix in (".json", ".model", ".tiktoken", ".txt")
    if not local and config.kind in ("auto", "huggingface") and HUB_NAME.fullmatch(config.path):
        return fetch_from_hub(config.path)
    raise ConfigError(
        f"tokenizer.path: there is no file or folder {path};"
        f" name a {_FORMATS}, a folder with one, a hub name, or {WORDS}"
    )


def _in_folder(folder: Path) -> Path:
    for pattern in _FOLDER_FILES:
        found = sorted(folder.glob(pattern))
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(file.name for file in found)
            raise ConfigError(f"tokenizer.path: {folder} has several ({names}); name one of them")
    raise ConfigError(
        f"tokenizer.path: the folder {folder} has no tokenizer in it; it needs a {_FORMATS}"
    )


def _kind(path: Path, config: TokenizerConfig) -> str:
    """huggingface, sentencepiece or tiktoken: as configured, by the name, or by the first bytes."""
    if config.kind != "auto":
        return config.kind
    try:
        with path.open("rb") as file:
            start = file.read(4096)
    except OSError as error:
        raise ConfigError(
            f"tokenizer.path: {path} can't be read ({error.strerror}); check its permissions"
        ) from error
    from streamfreq.tokenization.tiktoken import looks_like_ranks

    if path.suffix == ".tiktoken" or looks_like_ranks(start):
        return "tiktoken"
    if path.suffix == ".model":
        return "sentencepiece"
    if path.suffix == ".json" or path.name == "vocab.txt":
        return "huggingface"
    raise ConfigError(
        f"tokenizer.path: {path} has no known format; name a {_FORMATS}, or set tokenizer.kind"
    )


def _name(path: Path, config: TokenizerConfig) -> str:
    """What people call it: the folder of a tokenizer.json, else the file without its suffix."""
    if not Path(config.path).expanduser().exists():
        return config.path
    if path.name in ("tokenizer.json", "vocab.txt", "tokenizer.model"):
        return path.resolve().parent.name
    return path.stem
