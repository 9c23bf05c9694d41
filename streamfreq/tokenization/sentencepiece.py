"""SentencePiece .model files: unigram and BPE, by the sentencepiece library or gigatoken.

Control symbols (<s>, </s>) in a text are text: the library matches only user-defined symbols.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamfreq.config import TokenizerConfig
from streamfreq.errors import ConfigError
from streamfreq.tokenization.engines import SentencePieceEngine, one_line
from streamfreq.tokenization.fingerprints import bytes_digest, fingerprint
from streamfreq.tokenization.gigatoken import choose_engine
from streamfreq.tokenization.specials import hide_special_tokens
from streamfreq.tokenization.subword import SubwordTokenizer, Vocabulary, piece_text

if TYPE_CHECKING:
    import sentencepiece


def load_sentencepiece(path: Path, name: str, config: TokenizerConfig) -> SubwordTokenizer:
    """The tokenizer of a .model file; raises ConfigError for a damaged file."""
    import sentencepiece

    try:
        content = path.read_bytes()
        processor = sentencepiece.SentencePieceProcessor(model_proto=content)
        size = int(processor.get_piece_size())
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        raise ConfigError(
            f"tokenizer.path: {path} can't be read as a SentencePiece model: {one_line(error)};"
            " fetch the file again"
        ) from error
    if size == 0:
        raise ConfigError(
            f"tokenizer.path: {path} is no SentencePiece model (it has no pieces);"
            " fetch the file again"
        )
    pieces = [str(processor.id_to_piece(index)) for index in range(size)]
    look_alikes = [piece for index, piece in enumerate(pieces) if _is_extra(processor, index)]
    engine = choose_engine(
        config,
        SentencePieceEngine(processor, config.threads),
        functools.partial(_gigatoken, content),
        look_alikes,
    )
    texts = {index: piece_text(piece) for index, piece in enumerate(pieces)}
    mark = fingerprint("sentencepiece", {"file": bytes_digest(content)})
    return SubwordTokenizer(name, engine, Vocabulary(size, texts), mark)


def _is_extra(processor: sentencepiece.SentencePieceProcessor, index: int) -> bool:
    """Whether a piece was not learned: control, unknown, byte, or (score 0) user-defined."""
    return bool(
        processor.is_control(index)
        or processor.is_unknown(index)
        or processor.get_score(index) == 0.0
    )


def _gigatoken(content: bytes) -> Any:
    """gigatoken reads a BPE model by way of a tokenizer.json; its control symbols get hidden."""
    import gigatoken

    matching = gigatoken.Tokenizer.from_sentencepiece(content)
    hidden = hide_special_tokens(json.loads(matching._hf_json or "null"))
    return gigatoken.Tokenizer.from_json(json.dumps(hidden.document, ensure_ascii=False))
