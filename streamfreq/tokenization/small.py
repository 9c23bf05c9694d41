"""A small tokenizer learned from some text: for a demonstration, where no model brings its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

END_OF_TEXT = "<|endoftext|>"


def learn_bpe(texts: Iterable[str], vocab_size: int, path: Path) -> None:
    """Learn a byte-level BPE of `vocab_size` ids and write it to `path` (a tokenizer.json).

    The last id but none of the text is END_OF_TEXT, which stands between documents.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
