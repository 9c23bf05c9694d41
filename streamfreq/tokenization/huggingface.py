"""Hugging Face tokenizers: a tokenizer.json, a BERT vocab.txt, or a name on the hub."""

from __future__ import annotations

import functools
import json
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from streamfreq.config import TokenizerConfig
from streamfreq.errors import ConfigError
from streamfreq.tokenization.engines import TokenizersEngine, is_panic, one_line
from streamfreq.tokenization.fingerprints import fingerprint, huggingface_parts
from streamfreq.tokenization.gigatoken import choose_engine
from streamfreq.tokenization.specials import Document, HiddenDocument, hide_special_tokens
from streamfreq.tokenization.subword import SubwordTokenizer, Vocabulary, bytes_text, piece_text

if TYPE_CHECKING:
    import tokenizers

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
"""What a name on the hub looks like: NAME or ORGANISATION/NAME."""

_HUB_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.txt")
_HUB_TIMEOUT_SECONDS = 10.0


def load_tokenizer_json(path: Path, name: str, config: TokenizerConfig) -> SubwordTokenizer:
    """The tokenizer of a tokenizer.json; raises ConfigError for a damaged file."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"tokenizer.path: {path} can't be read as a tokenizer.json: {one_line(error)};"
            " fetch the file again"
        ) from error
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise ConfigError(
            f"tokenizer.path: {path} is JSON but no tokenizer.json (it has no model);"
            " name the tokenizer.json of a fast tokenizer"
        )
    return _from_document(document, path, name, config)


def load_bert_vocabulary(path: Path, name: str, config: TokenizerConfig) -> SubwordTokenizer:
    """WordPiece over a vocab.txt, as BertTokenizerFast of transformers builds it.

    Settings come from the tokenizer_config.json beside it, when there is one.
    """
    settings_path = path.with_name("tokenizer_config.json")
    try:
        with path.open(encoding="utf-8") as lines:
            vocab = {line.rstrip("\n"): index for index, line in enumerate(lines)}
        settings = json.loads(settings_path.read_bytes()) if settings_path.exists() else {}
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"tokenizer.path: {path} can't be read as a BERT vocabulary: {one_line(error)};"
            " fetch the folder again"
        ) from error
    document = bert_document(vocab, settings)
    if document["model"]["unk_token"] not in vocab:
        raise ConfigError(
            f"tokenizer.path: {path} has no line {document['model']['unk_token']}, so it is no BERT"
            " vocabulary; name a folder with a tokenizer.json"
        )
    return _from_document(document, path, name, config)


def bert_document(vocab: dict[str, int], settings: Document) -> Document:
    """The tokenizer.json of a BERT vocabulary; `settings` are those of tokenizer_config.json."""
    specials = [
        _content(settings.get(f"{role}_token") or f"[{role.upper()}]")
        for role in ("unk", "sep", "pad", "cls", "mask")
    ]
    ids = dict(vocab)
    for token in specials:
        ids.setdefault(token, max(ids.values(), default=-1) + 1)
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "added_tokens": [
            {"id": ids[token], "content": token, "special": True, **plain}
            for token in dict.fromkeys(specials)
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
            "strip_accents": settings.get("strip_accents"),
            "lowercase": settings.get("do_lower_case", True),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {
            "type": "WordPiece",
            "unk_token": specials[0],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocab,
        },
    }


def fetch_from_hub(name: str) -> Path:
    """The local copy of a hub repository's tokenizer file; raises ConfigError with the way out."""
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
    except ImportError as error:
        raise _unreachable(name, "huggingface_hub is not installed") from error
    cached_only = not hub_has_an_address()
    for file in _HUB_FILES:
        try:
            path = Path(
                hf_hub_download(
                    name, file, etag_timeout=_HUB_TIMEOUT_SECONDS, local_files_only=cached_only
                )
            )
            if file == "vocab.txt":
                _fetch_optional(name, "tokenizer_config.json", cached_only)
        except LocalEntryNotFoundError as error:
            raise _unreachable(name, "no connection, and no copy in its cache") from error
        except EntryNotFoundError:
            continue
        except Exception as error:
            raise _unreachable(name, one_line(error, 120)) from error
        return path
    raise _unreachable(name, f"the repository has none of {', '.join(_HUB_FILES)}")


def hub_has_an_address() -> bool:
    """Whether there is any use in asking: without a name server the library tries for long."""
    from huggingface_hub import constants

    if "https" in getproxies():
        return True
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
    except OSError:
        return False
    return True


def _fetch_optional(name: str, file: str, cached_only: bool) -> None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        hf_hub_download(name, file, etag_timeout=_HUB_TIMEOUT_SECONDS, local_files_only=cached_only)
    except LocalEntryNotFoundError:
        if not cached_only:
            raise
    except EntryNotFoundError:
        return


def _unreachable(name: str, reason: str) -> ConfigError:
    return ConfigError(
        f"tokenizer.path: {name} is no file or folder here, and as a name on the Hugging Face hub"
        f" it could not be fetched ({reason}); give the path of a tokenizer.json or of its folder"
    )


def _from_document(
    document: Document, path: Path, name: str, config: TokenizerConfig
) -> SubwordTokenizer:
    try:
        hidden = hide_special_tokens(document)
        text = json.dumps(hidden.document, ensure_ascii=False)
        mark = fingerprint("huggingface", huggingface_parts(document))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ConfigError(
            f"tokenizer.path: {path} is a damaged tokenizer.json ({type(error).__name__}:"
            f" {one_line(error)}); fetch the file again"
        ) from error
    reference = _reference(text, path)
    engine = choose_engine(
        config,
        TokenizersEngine(reference),
        functools.partial(_gigatoken, text.encode()),
        hidden.look_alikes,
    )
    return SubwordTokenizer(name, engine, _vocabulary(reference, document, hidden), mark)


def _reference(text: str, path: Path) -> tokenizers.Tokenizer:
    import tokenizers

    try:
        return tokenizers.Tokenizer.from_str(text)
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise ConfigError(
            f"tokenizer.path: the tokenizers library refuses {path}: {one_line(error)};"
            " fetch the file again, or name another tokenizer"
        ) from error


def _gigatoken(document: bytes) -> Any:
    import gigatoken

    return gigatoken.Tokenizer.from_json(document)


def _vocabulary(
    reference: tokenizers.Tokenizer, document: Document, hidden: HiddenDocument
) -> Vocabulary:
    """Ids as the library gives them (it does not always follow the ids that the file states)."""
    ids = reference.get_vocab(with_added_tokens=True)
    added = {token["content"] for token in document.get("added_tokens") or []}
    readable = _reader(document)
    texts = {}
    for token, index in ids.items():
        original = hidden.original_names.get(token, token)
        texts[index] = original if original in added else readable(original)
    return Vocabulary(1 + max(ids.values(), default=-1), texts)


def _reader(document: Document) -> Any:
    """How the model's tokens become text: byte alphabet, SentencePiece marks, or as they are."""
    kinds = {
        part.get("type")
        for field in ("normalizer", "pre_tokenizer", "decoder")
        for part in _components(document.get(field))
    }
    if "ByteLevel" in kinds:
        return _byte_level_text
    if "WordPiece" in kinds or document["model"].get("type") == "WordPiece":
        return str
    return piece_text


def _components(component: Any) -> list[Document]:
    """A normalizer, pre-tokenizer or decoder and, of a sequence, all its parts."""
    if not isinstance(component, dict):
        return []
    parts = [component]
    for field in ("normalizers", "pretokenizers", "decoders"):
        for part in component.get(field) or []:
            parts.extend(_components(part))
    return parts


@functools.cache
def _byte_alphabet() -> dict[str, int]:
    """The characters that stand for bytes in byte-level vocabularies (GPT-2's `bytes_to_unicode`).

    Printable bytes stand for themselves, the others for U+0100 and up, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update((chr(0x100 + n), byte) for n, byte in enumerate(others))
    return alphabet


def _byte_level_text(token: str) -> str:
    alphabet = _byte_alphabet()
    try:
        return bytes_text(bytes(alphabet[character] for character in token))
    except KeyError:
        return token


def _content(token: Any) -> str:
    """A special token of tokenizer_config.json: text, or an object with its content."""
    return str(token["content"]) if isinstance(token, dict) else str(token)
