from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfreq.config import TokenizerConfig
from streamfreq.errors import ConfigError
from streamfreq.tokenization import load_tokenizer
from streamfreq.tokenization.loading import limit_threads
from tests.unit.tokenization import files


def refusal(path: Path | str, **settings: Any) -> str:
    """The one line that loading `path` is refused with; it names the path."""
    with pytest.raises(ConfigError) as refused:
        load_tokenizer(TokenizerConfig(path=str(path), **settings))
    message = str(refused.value)
    assert "\n" not in message
    assert message.startswith("tokenizer.")
    assert Path(path).name in message
    return message


def test_importing_the_package_loads_no_tokenizer_library() -> None:
    program = (
        "import sys, streamfreq.tokenization as t; t.load_tokenizer;"
        "heavy = {'tokenizers', 'gigatoken', 'sentencepiece', 'tiktoken', 'jieba', 'regex',"
        " 'torch', 'transformers', 'huggingface_hub'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", ["gone.json", "no/such/folder/at/all", "x.model", "y.tiktoken"])
def test_nothing_at_the_path(name: str, tmp_path: Path) -> None:
    assert "there is no file or folder" in refusal(tmp_path / name)


@pytest.mark.parametrize("name", ["gpt2", "openai-community/gpt2"])
def test_a_hub_name_without_a_network(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    message = refusal(name)
    assert "hub" in message
    assert "give the path of a tokenizer.json" in message


def test_a_hub_name_in_the_local_cache_needs_no_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    repository = tmp_path / "models--team--tiny"
    files.byte_level_bpe(repository / "snapshots" / "0123abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123abc")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    tokenizer = load_tokenizer(TokenizerConfig(path="team/tiny"))
    assert tokenizer.name == "team/tiny"
    assert tokenizer.vocab_size == 503


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", b""),
        ("tokenizer.json", b"{"),
        ("tokenizer.json", b"\xff\xfe"),
        ("tokenizer.json", b"[]"),
        ("tokenizer.json", b"{}"),
        ("tokenizer.json", b'{"model": {}}'),
        ("tokenizer.json", b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]}}'),
        ("tokenizer.json", b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}'),
        ("tokenizer.json", b'{"model": {"type": "Magic", "vocab": {"a": 0}}}'),
        ("tokenizer.json", b'{"model": {"type": "Unigram", "vocab": [["a", 0]], "unk_id": 7}}'),
        ("x.model", b""),
        ("x.model", b"not a model"),
        ("x.model", b"\x0a\x05abc"),
        ("cl100k_base.tiktoken", b""),
        ("cl100k_base.tiktoken", b"YQ== 0\n"),
        ("cl100k_base.tiktoken", b"not base64 0\n"),
        ("cl100k_base.tiktoken", b"\x00\xff\n"),
        ("vocab.txt", b"\xff\xff\n"),
        ("vocab.txt", b"the\ndog\n"),
    ],
)
def test_a_damaged_file(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert "name" in refusal(path) or "fetch" in refusal(path)


@pytest.mark.parametrize("cut", [0.2, 0.9])
@pytest.mark.parametrize("kind", ["json", "model", "tiktoken"])
def test_a_truncated_file(kind: str, cut: float, tmp_path: Path) -> None:
    if kind == "json":
        path = files.byte_level_bpe(tmp_path)
    elif kind == "model":
        path = files.sentencepiece_model(tmp_path / "t.model", "unigram")
    else:
        path = files.tiktoken_file(tmp_path / "cl100k_base.tiktoken")
        cut /= 2
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * cut)])
    refusal(path)


def test_an_unknown_format(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.bin"
    path.write_bytes(b"\x00\x01\x02")
    assert "set tokenizer.kind" in refusal(path)


def test_a_folder_without_a_tokenizer_or_with_several(tmp_path: Path) -> None:
    assert "needs a tokenizer.json" in refusal(tmp_path)
    files.sentencepiece_model(tmp_path / "a.model", "unigram")
    files.sentencepiece_model(tmp_path / "b.model", "unigram")
    assert "a.model, b.model" in refusal(tmp_path)


def test_ranks_without_a_split_rule(tmp_path: Path) -> None:
    path = files.tiktoken_file(tmp_path / "mine.tiktoken")
    assert "set tokenizer.tiktoken_encoding to one of" in refusal(path)
    message = refusal(path, tiktoken_encoding="cl1000k")
    assert message.startswith("tokenizer.tiktoken_encoding: cl1000k is no known encoding")


def test_jieba_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(ConfigError, match=r"streamfreq\[jieba\]"):
        load_tokenizer(TokenizerConfig(path="words", words_segmenter="jieba"))


def test_gigatoken_can_be_asked_for_only_where_it_fits(tmp_path: Path) -> None:
    assert "set engine to auto" in refusal(files.word_level(tmp_path), engine="gigatoken")
    symbols = files.sentencepiece_model(tmp_path / "s.model", "bpe", as_it_is=True)
    assert "self-check" in refusal(symbols, engine="gigatoken")
    path = files.byte_level_bpe(tmp_path / "fits")
    assert load_tokenizer(TokenizerConfig(path=str(path), engine="gigatoken")).engine == "gigatoken"


def test_the_log_says_why_the_reference_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "streamfreq.tokenization"):
        load_tokenizer(TokenizerConfig(path=str(files.word_level(tmp_path))))
    (record,) = caplog.records
    assert "tokenizers does the work, not gigatoken" in record.getMessage()
    assert "WordLevel" in record.getMessage()
    assert "\n" not in record.getMessage()


@pytest.mark.parametrize("kind", ["auto", "huggingface"])
def test_a_folder_and_its_file_are_the_same(kind: Any, tmp_path: Path) -> None:
    path = files.byte_level_bpe(tmp_path / "tiny")
    by_file, by_folder = (
        load_tokenizer(TokenizerConfig(path=str(place), kind=kind)) for place in (path, path.parent)
    )
    assert by_file.name == by_folder.name == "tiny"
    assert by_file.fingerprint == by_folder.fingerprint


def test_kind_overrules_the_name(tmp_path: Path) -> None:
    model = files.sentencepiece_model(tmp_path / "pieces.bin", "unigram")
    tokenizer = load_tokenizer(TokenizerConfig(path=str(model), kind="sentencepiece"))
    assert (tokenizer.name, tokenizer.engine) == ("pieces", "sentencepiece")
    ranks = files.tiktoken_file(tmp_path / "tokenizer.model")
    tokenizer = load_tokenizer(TokenizerConfig(path=str(ranks), tiktoken_encoding="cl100k_base"))
    assert tokenizer.vocab_size == 272


def test_special_ids_belong_to_the_vocabulary(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(TokenizerConfig(path=str(files.byte_level_bpe(tmp_path))))
    assert tokenizer.vocab_size == 503
    assert [tokenizer.token_text(index) for index in (0, 500, 501, 502)] == [
        *files.SPECIALS,
        files.CODE_FENCE,
    ]
    assert tokenizer.token_text(503) == "#503"
    assert tokenizer.labels() == {}


def test_padding_truncation_and_post_processing_are_ignored(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(TokenizerConfig(path=str(files.byte_level_bpe(tmp_path))))
    lengths = tokenizer.encode_batch(["a", "a b c d e f g h i j k l m n o p"]).lengths_R
    assert lengths[0] == 1
    assert lengths[1] > 8


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_text_survives_a_byte_level_tokenizer(text: str) -> None:
    tokenizer = byte_level()
    ids = tokenizer.encode_batch([text]).ids_N.tolist()
    shown = "".join(tokenizer.token_text(token_id) for token_id in ids)
    if text.isascii():
        assert shown == text
    assert len(ids) <= len(text.encode())


_LOADED: list[Any] = []


def byte_level() -> Any:
    if not _LOADED:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            path = files.byte_level_bpe(Path(folder))
            _LOADED.append(load_tokenizer(TokenizerConfig(path=str(path))))
    return _LOADED[0]


def test_bert_settings_are_those_of_the_folder(tmp_path: Path) -> None:
    cased = files.bert_folder(tmp_path / "cased", {"do_lower_case": False})
    uncased = files.bert_folder(tmp_path / "uncased")
    split = files.bert_folder(tmp_path / "split", {"tokenize_chinese_chars": False})
    text = "Dog café 深度"
    shown = {}
    for folder in (cased, uncased, split):
        tokenizer = load_tokenizer(TokenizerConfig(path=str(folder)))
        ids = tokenizer.encode_batch([text]).ids_N.tolist()
        shown[folder.name] = [tokenizer.token_text(token_id) for token_id in ids]
    assert shown["cased"] == ["Dog", "café", "深", "度"]
    assert shown["uncased"] == ["dog", "cafe", "深", "度"]
    assert shown["split"] == ["dog", "cafe", "深", "##度"]


def test_bert_special_tokens_missing_from_the_vocabulary_are_added(tmp_path: Path) -> None:
    folder = files.bert_folder(tmp_path, {"mask_token": {"content": "<mask>"}})
    tokenizer = load_tokenizer(TokenizerConfig(path=str(folder)))
    assert tokenizer.vocab_size == 22
    assert tokenizer.token_text(21) == "<mask>"
    assert 21 not in tokenizer.encode_batch(["<mask> [MASK]"]).ids_N


def test_threads_reach_the_libraries_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in ("RAYON_NUM_THREADS", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    limit_threads(0)
    assert "RAYON_NUM_THREADS" not in os.environ
    limit_threads(1)
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
    limit_threads(3)
    limit_threads(5)
    assert os.environ["RAYON_NUM_THREADS"] == "3"


@pytest.mark.parametrize("threads", [1, 2])
def test_the_number_of_threads_does_not_change_the_ids(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAYON_NUM_THREADS", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "")
    paths = [
        files.byte_level_bpe(tmp_path),
        files.sentencepiece_model(tmp_path / "s.model", "unigram"),
        files.tiktoken_file(tmp_path / "cl100k_base.tiktoken"),
    ]
    for path in paths:
        for engine in ("auto", "reference"):
            few, all_of_them = (
                load_tokenizer(TokenizerConfig(path=str(path), engine=engine, threads=count))
                for count in (threads, 0)
            )
            ids = few.encode_batch(files.TEXTS).ids_N.tolist()
            assert ids == all_of_them.encode_batch(files.TEXTS).ids_N.tolist()


def test_a_formatted_file_is_the_same_tokenizer(tmp_path: Path) -> None:
    path = files.byte_level_bpe(tmp_path)
    before = load_tokenizer(TokenizerConfig(path=str(path)))
    document = json.loads(path.read_bytes())
    document["padding"] = document["truncation"] = document["post_processor"] = None
    path.write_text(json.dumps(dict(reversed(document.items()))))
    after = load_tokenizer(TokenizerConfig(path=str(path)))
    assert after.fingerprint == before.fingerprint
