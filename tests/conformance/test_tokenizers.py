"""Every tokenizer against every law: the tiny ones made here, and the real ones in ../shared."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import tiktoken
from tokenizers import Tokenizer as HuggingFace

from streamfreq.config import TokenizerConfig
from streamfreq.errors import DataRefused
from streamfreq.records import TokenBatch
from streamfreq.tokenization import Tokenizer, load_tokenizer
from streamfreq.tokenization.probes import probe_texts, random_strings
from streamfreq.tokenization.segmenting import words_with_bigrams
from streamfreq.tokenization.tiktoken import ENCODINGS, parse_ranks
from tests.unit.tokenization import files

Plain = Callable[[Sequence[str]], list[list[int]]]


@dataclass(frozen=True)
class Case:
    """A tokenizer: where it comes from, what its plain library says, whether gigatoken does it."""

    path: str
    plain: Plain
    fast: bool
    stream: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    def load(self, engine: str = "auto") -> Tokenizer:
        return load_tokenizer(TokenizerConfig(path=self.path, engine=engine, **self.settings))


def plain_huggingface(path: Path) -> Plain:
    tokenizer = HuggingFace.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True

    def encode(texts: Sequence[str]) -> list[list[int]]:
        encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    return encode


def plain_bert(folder: Path) -> Plain:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.BertTokenizerFast.from_pretrained(str(folder)).backend_tokenizer
    tokenizer.encode_special_tokens = True

    def encode(texts: Sequence[str]) -> list[list[int]]:
        encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    return encode


def plain_sentencepiece(path: Path) -> Plain:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return lambda texts: [processor.encode(text) for text in texts]


def plain_tiktoken(path: Path, encoding: str) -> Plain:
    rule = ENCODINGS[encoding]
    plain = tiktoken.Encoding(
        "plain",
        pat_str=rule.pattern,
        mergeable_ranks=parse_ranks(path.read_bytes()),
        special_tokens={},
    )
    return lambda texts: [plain.encode_ordinary(text) for text in texts]


def plain_words(rows: int) -> Plain:
    """BLAKE2b of each word, four bytes a row, written out."""
    key = hashlib.sha256(b"streamfreq words 0").digest()

    def ids(word: str) -> list[int]:
        digest = hashlib.blake2b(word.encode(), digest_size=32, key=key).digest()
        hashes = np.frombuffer(digest, "<u4")[:rows] % 2**17
        return (hashes + np.arange(rows) * 2**17).tolist()

    return lambda texts: [
        [token_id for word in words_with_bigrams(text) for token_id in ids(word)] for text in texts
    ]


TINY = [
    *("byte-level", "word-level", "unigram", "bert"),
    *("unigram-model", "bpe-model", "bpe-llama-model"),
    *("cl100k_base", "o200k_base", "r50k_base", "words", "words-4-rows"),
]
SHARED = [
    *("gpt2", "smollm2", "deepseek", "bert-en", "bert-zh", "chinese-sp", "stories260K"),
    "gpt2-ranks",
]


@cache
def tiny_case(name: str, folder: Path) -> Case:
    if name == "byte-level":
        path = files.byte_level_bpe(folder / name)
        return Case(str(path), plain_huggingface(path), fast=True)
    if name in ("word-level", "unigram"):
        path = (files.word_level if name == "word-level" else files.unigram)(folder / name)
        return Case(str(path), plain_huggingface(path), fast=False)
    if name == "bert":
        path = files.bert_folder(folder / name, {"do_lower_case": False, "strip_accents": True})
        return Case(str(path), plain_bert(path), fast=False)
    if name.startswith("words"):
        rows = 4 if name == "words-4-rows" else 1
        return Case("words", plain_words(rows), fast=False, settings={"words_rows": rows})
    if name.endswith("-model"):
        kind = name.partition("-")[0]
        llama = "llama" in name
        symbols = () if llama else (files.CODE_FENCE,)
        path = files.sentencepiece_model(folder / f"{name}.model", kind, llama, symbols)
        return Case(str(path), plain_sentencepiece(path), fast=llama)
    path = files.tiktoken_file(folder / f"{name}.tiktoken")
    return Case(str(path), plain_tiktoken(path, name), fast=True)


@cache
def shared_case(name: str, shared: Path, folder: Path) -> Case:
    stream = "zhihu_hot" if name in ("deepseek", "bert-zh", "chinese-sp") else "hn_frontpage"
    stream_path = str(shared / "data" / f"{stream}.jsonl.gz")
    if name == "gpt2-ranks":
        path = gpt2_ranks(shared / "tokenizers" / "gpt2" / "tokenizer.json", folder)
        return Case(str(path), plain_tiktoken(path, "r50k_base"), True, stream_path)
    path = shared / ("models" if name == "stories260K" else "tokenizers") / name
    if name == "bert-zh":
        return Case(str(path), plain_bert(path), False, stream_path)
    if name == "chinese-sp":
        model = path / "chinese_sp.model"
        return Case(str(model), plain_sentencepiece(model), False, stream_path)
    fast = name in ("gpt2", "deepseek", "stories260K")
    return Case(str(path), plain_huggingface(path / "tokenizer.json"), fast, stream_path)


def gpt2_ranks(source: Path, folder: Path) -> Path:
    """r50k_base.tiktoken from GPT-2's tokenizer.json: the ids of its vocabulary are the ranks."""
    from streamfreq.tokenization.huggingface import _byte_alphabet

    alphabet = _byte_alphabet()
    vocab = json.loads(source.read_bytes())["model"]["vocab"]
    path = folder / "gpt2" / "r50k_base.tiktoken"
    path.parent.mkdir()
    with path.open("wb") as file:
        for token, rank in sorted(vocab.items(), key=lambda item: item[1]):
            if token != "<|endoftext|>":
                content = base64.b64encode(bytes(alphabet[character] for character in token))
                file.write(b"%s %d\n" % (content, rank))
    return path


@cache
def stream_texts(path: str, count: int) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line)["text"] for line in lines]
    return random.Random(7).sample(rows, count)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizers")


@pytest.fixture(
    params=[*TINY, *(pytest.param(name, marks=pytest.mark.shared_data) for name in SHARED)]
)
def case(request: pytest.FixtureRequest, folder: Path) -> Case:
    if request.param in TINY:
        return tiny_case(request.param, folder)
    shared: Path = request.getfixturevalue("shared_dir")
    return shared_case(request.param, shared, folder)


@pytest.fixture(params=["auto", "reference"])
def tokenizer(request: pytest.FixtureRequest, case: Case) -> Tokenizer:
    return loaded(case.path, request.param, tuple(case.settings.items()))


@cache
def loaded(path: str, engine: str, settings: tuple[tuple[str, Any], ...]) -> Tokenizer:
    return load_tokenizer(TokenizerConfig(path=path, engine=engine, **dict(settings)))


LOOK_ALIKES = [
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<pad>", "<s>", "</s>", "<unk>", "[CLS]"),
    *("[SEP]", "[UNK]", "[PAD]", "[MASK]", "<|endofprompt|>", "<repo_name>", "<0x41>"),
    *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<｜User｜>", "<code>"),
]


def look_alike_texts() -> list[str]:
    texts = []
    for token in LOOK_ALIKES:
        texts += [token, f"{token}{token}", f"a{token}b", f" {token} ", f"x\n{token}\n", token * 50]
        texts += [token[1:], token[:-1], token.upper(), f"<{token}>", f"{token[:3]} {token[3:]}"]
    return [*texts, "".join(LOOK_ALIKES), " ".join(LOOK_ALIKES)]


def texts_of(case: Case, count: int = 300) -> list[str]:
    texts = [*files.TEXTS, *probe_texts(LOOK_ALIKES, random_texts=100)]
    return texts + (stream_texts(case.stream, count) if case.stream else [])


def rows_of(batch: TokenBatch) -> list[list[int]]:
    return [row.tolist() for row in np.split(batch.ids_N, np.cumsum(batch.lengths_R))[:-1]]


def test_the_expected_engine_does_the_work(case: Case) -> None:
    engine = loaded(case.path, "auto", tuple(case.settings.items())).engine
    assert (engine == "gigatoken") == case.fast


def test_ids_are_those_of_the_plain_library(case: Case, tokenizer: Tokenizer) -> None:
    texts = texts_of(case, 2_000) + random_strings(500, seed=11)
    assert_as_plain(case, case.plain, tokenizer, texts)


def assert_as_plain(case: Case, plain: Plain, tokenizer: Tokenizer, texts: list[str]) -> None:
    """The same ids; of models that know their special tokens as words, on texts without those.

    For word-level and unigram models the plain library gives the special id for such a text.
    """
    if Path(case.path).parent.name in ("word-level", "unigram"):
        names = [
            token["content"] for token in json.loads(Path(case.path).read_bytes())["added_tokens"]
        ]
        texts = [text for text in texts if not any(name in text for name in names)]
    assert rows_of(tokenizer.encode_batch(texts)) == plain(texts)


def test_ids_and_lengths_fit_together(case: Case, tokenizer: Tokenizer) -> None:
    texts = texts_of(case)
    batch = tokenizer.encode_batch(texts)
    assert batch.ids_N.dtype == np.int32
    assert batch.lengths_R.dtype == np.int64
    assert batch.ids_N.flags.c_contiguous
    assert len(batch) == len(texts)
    assert batch.lengths_R.sum() == len(batch.ids_N)
    assert batch.ids_N.min() >= 0
    assert batch.ids_N.max() < tokenizer.vocab_size
    assert (batch.lengths_R % tokenizer.ids_per_token == 0).all()


def test_how_a_batch_is_split_does_not_matter(case: Case, tokenizer: Tokenizer) -> None:
    texts = texts_of(case, 50)
    whole = tokenizer.encode_batch(texts)
    for size in (1, 64):
        parts = [
            tokenizer.encode_batch(texts[start : start + size])
            for start in range(0, len(texts), size)
        ]
        joined = TokenBatch.concatenate(parts)
        np.testing.assert_array_equal(joined.ids_N, whole.ids_N)
        np.testing.assert_array_equal(joined.lengths_R, whole.lengths_R)


def test_the_order_of_texts_does_not_matter(case: Case, tokenizer: Tokenizer) -> None:
    texts = texts_of(case, 100)
    order = list(range(len(texts)))
    random.Random(3).shuffle(order)
    rows = rows_of(tokenizer.encode_batch(texts))
    shuffled = rows_of(tokenizer.encode_batch([texts[index] for index in order]))
    assert shuffled == [rows[index] for index in order]


def test_what_looks_like_a_special_token_is_text(case: Case, tokenizer: Tokenizer) -> None:
    texts = look_alike_texts()
    assert_as_plain(case, case.plain, tokenizer, texts)
    reached = set(tokenizer.encode_batch(texts).ids_N.tolist())
    assert not reached & special_ids(case)


@cache
def special_ids_of(path: Path) -> frozenset[int]:
    document = json.loads(path.read_bytes())
    model, plain = document["model"], HuggingFace.from_file(str(path))
    unknown = model.get("unk_token")
    if unknown is None and model.get("unk_id") is not None:
        unknown = model["vocab"][model["unk_id"]][0]
    special = [token["content"] for token in document["added_tokens"] if token["special"]]
    return frozenset(plain.token_to_id(token) for token in special if token != unknown)


def special_ids(case: Case) -> set[int] | frozenset[int]:
    """The ids of special tokens, but for the unknown token, which ordinary text can reach."""
    path = Path(case.path)
    if path.is_dir() and (path / "tokenizer.json").exists():
        path /= "tokenizer.json"
    if path.suffix == ".json":
        return special_ids_of(path)
    if path.suffix == ".model":
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        return {index for index in range(len(processor)) if processor.is_control(index)}
    if path.suffix == ".tiktoken":
        return set(ENCODINGS[path.stem].special.values())
    if path.is_dir():
        lines = (path / "vocab.txt").read_text(encoding="utf-8").split("\n")
        return {lines.index(token) for token in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")}
    return set()


def test_no_text_has_no_tokens(tokenizer: Tokenizer) -> None:
    assert len(tokenizer.encode_batch([])) == 0
    assert tokenizer.encode_batch([]).ids_N.dtype == np.int32
    assert tokenizer.encode_batch(["", ""]).lengths_R.tolist() == [0, 0]
    lengths = tokenizer.encode_batch(["", "the dog", ""]).lengths_R
    assert lengths[0] == lengths[2] == 0
    assert lengths[1] > 0


def test_a_poison_text_leaves_the_tokenizer_working(case: Case, tokenizer: Tokenizer) -> None:
    before = tokenizer.encode_batch(files.TEXTS)
    for poison in ("a\ud800b", "\udcff", "\x00" * 100):
        with suppress(DataRefused):
            tokenizer.encode_batch(["fine", poison])
    after = tokenizer.encode_batch(files.TEXTS)
    np.testing.assert_array_equal(after.ids_N, before.ids_N)


def test_all_engines_have_one_fingerprint(case: Case) -> None:
    auto, reference = (
        loaded(case.path, engine, tuple(case.settings.items())) for engine in ("auto", "reference")
    )
    assert auto.fingerprint == reference.fingerprint
    assert int(auto.fingerprint, 16) > 0
    assert auto.vocab_size == reference.vocab_size


def test_every_id_has_a_text(tokenizer: Tokenizer) -> None:
    count = min(tokenizer.vocab_size, 3_000)
    for token_id in np.linspace(0, tokenizer.vocab_size - 1, count).astype(int).tolist():
        assert isinstance(tokenizer.token_text(token_id), str)


@pytest.mark.parametrize("name", ["byte-level", "bert", "bpe-model", "cl100k_base", "words"])
def test_a_text_of_5_mb(name: str, folder: Path) -> None:
    tokenizer = loaded_tiny(name, folder)
    sentence = "The dog's 12 streams, and 中文! "
    text = sentence * (5_000_000 // len(sentence.encode()))
    batch = tokenizer.encode_batch(["before", text, "after"])
    half = tokenizer.encode_batch([text[: len(text) // 5 // len(sentence) * len(sentence)]]).ids_N
    assert len(half) > 100_000
    np.testing.assert_array_equal(batch.slice(1, 2).ids_N[: len(half)], half)
    assert batch.slice(0, 1).ids_N.tolist() == tokenizer.encode_batch(["before"]).ids_N.tolist()
    assert batch.slice(2, 3).ids_N.tolist() == tokenizer.encode_batch(["after"]).ids_N.tolist()


def loaded_tiny(name: str, folder: Path) -> Tokenizer:
    case = tiny_case(name, folder)
    return loaded(case.path, "auto", tuple(case.settings.items()))


def test_tokenizers_differ_in_their_fingerprints(folder: Path) -> None:
    tokenizers = {name: loaded_tiny(name, folder) for name in TINY}
    assert len({tokenizer.fingerprint for tokenizer in tokenizers.values()}) == len(TINY)


@pytest.mark.shared_data
def test_real_tokenizers_have_their_known_sizes(shared_dir: Path, folder: Path) -> None:
    sizes = {}
    for name in SHARED:
        path = shared_case(name, shared_dir, folder).path
        sizes[name] = loaded(path, "auto", ()).vocab_size
    assert sizes == {
        "gpt2": 50_257,
        "smollm2": 49_152,
        "deepseek": 129_280,
        "bert-en": 30_522,
        "bert-zh": 21_128,
        "chinese-sp": 20_000,
        "stories260K": 512,
        "gpt2-ranks": 50_257,
    }


@pytest.mark.shared_data
def test_gpt2_counts_alike_from_both_of_its_formats(shared_dir: Path, folder: Path) -> None:
    texts = stream_texts(str(shared_dir / "data" / "hn_frontpage.jsonl.gz"), 5_000)
    by_ranks, by_json = (
        loaded(shared_case(name, shared_dir, folder).path, "auto", ()).encode_batch(texts)
        for name in ("gpt2-ranks", "gpt2")
    )
    np.testing.assert_array_equal(by_ranks.ids_N, by_json.ids_N)


@pytest.mark.shared_data
@pytest.mark.parametrize(("name", "stream"), [("gpt2", "hn_frontpage"), ("deepseek", "zhihu_hot")])
def test_the_fast_engine_agrees_on_a_large_sample(
    name: str, stream: str, shared_dir: Path, folder: Path
) -> None:
    texts = stream_texts(str(shared_dir / "data" / f"{stream}.jsonl.gz"), 12_000)
    path = shared_case(name, shared_dir, folder).path
    fast, reference = (
        loaded(path, engine, ()).encode_batch(texts) for engine in ("auto", "reference")
    )
    np.testing.assert_array_equal(fast.ids_N, reference.ids_N)
    np.testing.assert_array_equal(fast.lengths_R, reference.lengths_R)


@pytest.mark.shared_data
def test_a_bert_vocabulary_is_the_tokenizer_json_made_of_it(
    shared_dir: Path, tmp_path: Path
) -> None:
    source = shared_dir / "tokenizers" / "bert-en"
    for name in ("vocab.txt", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    of_lines = load_tokenizer(TokenizerConfig(path=str(tmp_path)))
    of_json = loaded(str(source), "auto", ())
    assert of_lines.fingerprint == of_json.fingerprint
    assert of_lines.vocab_size == of_json.vocab_size
