"""Models are made and loaded alike each time; mistakes are one line; probes tell the truth."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from streamfreq.errors import ConfigError
from streamfreq.tokenization.small import END_OF_TEXT, learn_bpe
from trainer.config import DataConfig, ModelConfig
from trainer.models import (
    compile_body,
    document_tokens,
    has_dropout,
    isolates_documents,
    load_model,
)
from trainer.models import loading as loading_module

NEW = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}


def new(**fields: object) -> ModelConfig:
    return ModelConfig.model_validate({"new": {**NEW, **fields}})


def test_a_new_model_is_the_same_each_time_and_has_the_tokenizers_ids() -> None:
    torch.manual_seed(1)
    first = load_model(new(), seed=5, vocab_size=60)
    torch.manual_seed(2)
    second, other = load_model(new(), 5, 60), load_model(new(), 6, 60)
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)
    assert first.config.vocab_size == 60
    assert first.training
    assert not first.config.use_cache


def test_a_stored_model_comes_back(tmp_path: Path) -> None:
    made = load_model(new(), 0, 60)
    made.save_pretrained(tmp_path)
    loaded = load_model(ModelConfig(path=str(tmp_path)), 0, 50)
    assert torch.equal(loaded.lm_head.weight, made.lm_head.weight)
    assert load_model(ModelConfig(path=str(tmp_path), dtype="bfloat16"), 0, 50).dtype is (
        torch.bfloat16
    )
    with pytest.raises(ConfigError, match="it has 60 token ids, but the tokenizer has 61"):
        load_model(ModelConfig(path=str(tmp_path)), 0, 61)


def test_gradient_checkpointing_is_switched_on() -> None:
    config = ModelConfig.model_validate({"new": NEW, "gradient_checkpointing": True})
    model = load_model(config, 0, 60)
    assert model.is_activation_checkpointing
    ids = torch.arange(8)[None]
    model(input_ids=ids, position_ids=ids, use_cache=False).logits.sum().backward()
    assert model.lm_head.weight.grad is not None


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (new(model_type="lama"), "model.new.model_type = lama: .* did you mean llama"),
        (new(model_type="bert-like"), "model.new.model_type = bert-like"),
        (new(hidden_sise=3), "model.new.hidden_sise: .* did you mean hidden_size"),
        (new(num_attention_heads=0), "model.new: llama can't be made so"),
        (new(num_attention_heads=3), "not a multiple of the number of attention heads"),
        (new(hidden_size="wide"), "hidden_size.* expected int"),
        (new(hidden_act="nope"), "there is no 'nope'"),
        (ModelConfig(path="/nowhere/at/all"), "there is no folder /nowhere/at/all"),
        (ModelConfig(path="./nowhere"), "there is no folder nowhere"),
    ],
)
def test_a_model_that_cannot_be_is_one_line(config: ModelConfig, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        load_model(config, 0, 60)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "has no config.json"),
        ("{}", "names no model_type"),
        ("no json", "names no model_type"),
        ('{"model_type": "t5"}', "holds a t5, which is no causal language model"),
        (json.dumps({**NEW, "vocab_size": 9}), "can't be loaded"),
    ],
)
def test_a_folder_that_holds_no_causal_model_is_one_line(
    tmp_path: Path, content: str | None, says: str
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=says) as refused:
        load_model(ModelConfig(path=str(tmp_path)), 0, 5)
    assert len(str(refused.value).splitlines()) == 1


def test_damaged_weights_are_one_line(tmp_path: Path) -> None:
    load_model(new(), 0, 60).save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    with pytest.raises(ConfigError, match=r"model\.path: .* can't be loaded") as refused:
        load_model(ModelConfig(path=str(tmp_path)), 0, 60)
    assert len(str(refused.value).splitlines()) == 1


def test_weights_that_are_missing_are_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = load_model(new(), 0, 60)
    kept = {name: value for name, value in made.state_dict().items() if "lm_head" not in name}
    made.save_pretrained(tmp_path, state_dict=kept)
    with caplog.at_level(logging.WARNING, logger="trainer.models"):
        load_model(ModelConfig(path=str(tmp_path)), 0, 60)
    (line,) = caplog.messages
    assert "lacks 1 tensors, which begin at random: lm_head.weight" in line


def test_a_hub_name_without_a_network_is_looked_up_in_the_cache_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(loading_module, "hub_has_an_address", lambda: False)
    monkeypatch.setattr("socket.getaddrinfo", lambda *args, **_: asked.append(args[0]))
    with pytest.raises(ConfigError, match=r"model\.path: some-one/some-model .*no connection"):
        load_model(ModelConfig(path="some-one/some-model"), 0, 60)
    made = load_model(new(), 0, 60)
    made.save_pretrained(tmp_path)
    monkeypatch.setattr(loading_module, "snapshot_download", lambda *_, **__: str(tmp_path))
    loaded = load_model(ModelConfig(path="some-one/some-model"), 0, 60)
    assert torch.equal(loaded.lm_head.weight, made.lm_head.weight)
    assert not asked


TINY = {
    "llama": NEW,
    "gpt2": {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "qwen3": {**NEW, "model_type": "qwen3", "head_dim": 8},
    "gpt_neox": {**NEW, "model_type": "gpt_neox"},
}


@pytest.mark.parametrize("kind", TINY)
def test_documents_side_by_side_see_only_themselves(kind: str) -> None:
    config = AutoConfig.for_model(vocab_size=60, **TINY[kind])
    assert isolates_documents(AutoModelForCausalLM.from_config(config))


class Leaky(nn.Module):
    """Each position sees the mean of the whole row."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(60, 8)
        self.head = nn.Linear(8, 60)

    def forward(self, input_ids, position_ids, use_cache):
        hidden = self.embed(input_ids)
        logits = self.head(hidden + hidden.mean(dim=1, keepdim=True))
        return type("Output", (), {"logits": logits})()


def test_a_model_that_mixes_documents_is_found_out() -> None:
    assert not isolates_documents(Leaky())


def test_dropout_is_seen() -> None:
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(vocab_size=60, **NEW))
    assert not has_dropout(model)
    assert has_dropout(
        AutoModelForCausalLM.from_config(
            AutoConfig.for_model(vocab_size=60, **NEW, attention_dropout=0.1)
        )
    )
    assert has_dropout(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.2)))


OPT = {
    "model_type": "opt",
    "hidden_size": 16,
    "word_embed_proj_dim": 16,
    "ffn_dim": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}
BLOOM = {"model_type": "bloom", "hidden_size": 16, "n_layer": 2, "n_head": 2}


@pytest.mark.parametrize(
    "fields",
    [
        *({**OPT, "dropout": rate} for rate in (0.0, 0.2)),
        *({**BLOOM, "hidden_dropout": rate} for rate in (0.0, 0.2)),
        *({**NEW, "attention_dropout": rate} for rate in (0.0, 0.2)),
        {**TINY["gpt2"], "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
        {**TINY["gpt2"], "resid_pdrop": 0.2, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    ],
)
def test_dropout_is_told_exactly_where_training_differs_from_evaluation(
    fields: dict[str, object],
) -> None:
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(AutoConfig.for_model(vocab_size=60, **fields))
    ids = torch.arange(3, 35)[None]
    with torch.no_grad():
        learned, judged = (made.train(mode)(input_ids=ids).logits for mode in (True, False))
    assert has_dropout(made) is not torch.equal(learned, judged)


class Unnamed(nn.Module):
    """Compiles to anything; it has a parameter, which tells the device."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, numbers):
        return numbers * self.scale


def test_without_a_compiler_the_model_runs_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    body = Unnamed()
    from torch._inductor import config as inductor

    missing = {"cpp.cxx": (None, "/nowhere/c++"), "force_disable_caches": True}
    with caplog.at_level(logging.WARNING, logger="trainer.models"), inductor.patch(missing):
        compile_body(body)
        assert torch.equal(body(torch.ones(2)), torch.ones(2))
    (line,) = [record for record in caplog.records if record.name == "trainer.models"]
    assert "model.compile" in line.getMessage()
    assert len(line.getMessage().splitlines()) == 1


def config_with(**ids: object):
    return AutoConfig.for_model(
        "llama", **{"vocab_size": 100, "bos_token_id": None, "eos_token_id": None, **ids}
    )


def tokens(config, data: DataConfig | None = None, *, path: str = "", is_new: bool = False):
    made = document_tokens(config, path, data or DataConfig(), is_new=is_new)
    return made.start_id, made.end_id, made.pad_id


def test_a_models_own_tokens_stand_around_documents(tmp_path: Path) -> None:
    assert tokens(config_with()) == (None, None, 0)
    assert tokens(config_with(bos_token_id=1, eos_token_id=2)) == (1, 2, 2)
    assert tokens(config_with(eos_token_id=[7, 8], pad_token_id=5)) == (None, 7, 5)
    # One token that is both stands behind each document, and so in front of the next one.
    assert tokens(config_with(bos_token_id=3, eos_token_id=3)) == (None, 3, 3)
    none = DataConfig(document_start="none", document_end="none")
    assert tokens(config_with(bos_token_id=1, eos_token_id=2), none) == (None, None, 2)


def test_a_new_models_tokens_come_from_the_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    learn_bpe(["a few words"], 260, path)
    ids = {item["content"]: item["id"] for item in json.loads(path.read_text())["added_tokens"]}
    config = AutoConfig.for_model("llama", vocab_size=260)  # its type's own: 1 and 2
    assert tokens(config, path=str(path), is_new=True) == (
        None,
        ids[END_OF_TEXT],
        ids[END_OF_TEXT],
    )


@pytest.mark.parametrize("written", ["text", "object"])
def test_a_tokenizer_says_which_tokens_are_its_start_and_end(tmp_path: Path, written: str) -> None:
    names = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
    added = [{"id": id_, "content": name} for id_, name in enumerate(names, start=3)]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    start, end = (name if written == "text" else {"content": name} for name in names[:2])
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": start, "eos_token": end, "pad_token": None})
    )
    config = AutoConfig.for_model("llama", vocab_size=60)
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        assert tokens(config, path=str(path), is_new=True) == (3, 4, 4)


@pytest.mark.parametrize("field", ["document_start", "document_end"])
def test_a_token_that_is_demanded_has_to_be_there(field: str) -> None:
    value = "bos" if field == "document_start" else "eos"
    with pytest.raises(ConfigError, match=f"data.{field} = {value}"):
        tokens(config_with(), DataConfig.model_validate({field: value}))


class WithoutPositions(Leaky):
    """As recurrent models are."""

    def forward(self, input_ids, use_cache):
        return super().forward(input_ids, None, use_cache)


def test_a_model_without_positions_is_one_line() -> None:
    with pytest.raises(ConfigError, match="WithoutPositions takes no position_ids"):
        isolates_documents(WithoutPositions())
