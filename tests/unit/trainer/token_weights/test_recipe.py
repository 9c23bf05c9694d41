"""From counts to weights: the sign, the mean of 1, padding, terms; finite whatever comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from streamfreq.codec import Snapshot
from streamfreq.errors import ConfigError
from streamfreq.records import TokenBatch, TopicPartition
from trainer.config import TokenWeightsConfig
from trainer.token_weights import Recipe, Terms, TokenTables, check_recipe

S, PADDED = 8, 11


def snapshot(short: Sequence[float], long: Sequence[float], **changes: object) -> Snapshot:
    counts_HV = np.array([short, long], np.float64)
    made = Snapshot(
        job="news",
        version=3,
        created_at_ms=5,
        as_of_ms=4,
        half_lives_seconds=(60.0, 3600.0),
        counts_HV=counts_HV,
        documents_HV=counts_HV / 2,
        tokens_H=counts_HV.sum(axis=1),
        records_H=np.array([10.0, 100.0]),
        offsets={TopicPartition("t", 0): 5},
        tokenizer_name="small",
        tokenizer_fingerprint="f",
        epoch=1,
    )
    return replace(made, **changes)


def config(**fields: object) -> TokenWeightsConfig:
    return TokenWeightsConfig.model_validate(fields)


LONG = [400.0, 200.0, 100.0, 50.0, 25.0, 12.0, 6.0, 3.0]
SHORT = [4.0, 2.0, 1.0, 0.5, 0.25, 0.12, 0.06, 0.03]
RARITY = ["inverse_power", "idf", "rare_boost", "effective_number", "exponential", "subsampling"]


@pytest.mark.parametrize("scheme", RARITY)
def test_a_token_that_grows_weighs_less_under_every_rarity_scheme(scheme: str) -> None:
    params = {"beta": 0.99} if scheme == "effective_number" else {}
    recipe = Recipe(config(product=[{"scheme": scheme, "params": params}]))
    grown = [*LONG]
    grown[6] = 300.0
    before, after = (recipe.build(snapshot(SHORT, long)).weights_V for long in (LONG, grown))
    assert after[6] < before[6]


def test_a_token_that_rises_weighs_more_under_emergence() -> None:
    recipe = Recipe(config(product=[{"scheme": "emergence", "horizon": "shortest"}]))
    risen = [*SHORT]
    risen[6] = 8.0
    before, after = (recipe.build(snapshot(short, LONG)) for short in (SHORT, risen))
    assert after.weights_V[6] > 1.5 * before.weights_V[6]
    assert after.rise_V[6] > 2 * before.rise_V[6]


counts = st.lists(st.sampled_from([0.0, 1e-9, 0.5, 1.0, 3.0, 700.0, 1e12]), min_size=S, max_size=S)


@given(
    short=counts,
    long=counts,
    strength=st.floats(0, 1),
    boost=st.floats(0, 50),
    smoothing=st.sampled_from([0.0, 5e-324, 1e-50, 1.0]),
)
def test_weights_are_finite_and_their_mean_over_the_stream_is_1(
    short: list[float], long: list[float], strength: float, boost: float, smoothing: float
) -> None:
    terms = Terms({"term": (2, 5)}, boost, 1.0)
    recipe = Recipe(config(smoothing=smoothing), vocab_size=PADDED, terms=terms)
    tables = recipe.build(snapshot(short, long))
    for name, tensor in tables.tensors().items():
        assert tensor.shape == (PADDED,)
        assert tensor.dtype == torch.float32
        assert torch.isfinite(tensor).all(), name
    assert (tables.weights_V[S:] == 1).all()
    assert (tables.share_V[S:] == 0).all()
    assert (tables.draw_share_V > 0).all()
    if sum(long) > 0:
        share = np.array(long) / sum(long)
        for used in (tables, tables.with_strength(strength)):
            assert float(share @ used.weights_V[:S].double().numpy()) == pytest.approx(1, rel=1e-4)
    else:
        assert (tables.weights_V == 1).all()


@pytest.mark.parametrize("terms", [None, Terms({"term": (2, 5)}, 4.0, 1.0)])
def test_an_empty_snapshot_gives_neutral_weights(terms: Terms | None) -> None:
    recipe = Recipe(config(), vocab_size=PADDED, terms=terms)
    tables = recipe.build(snapshot([0.0] * S, [0.0] * S))
    assert (tables.weights_V == 1).all()
    assert (tables.rise_V == 1).all()


def test_strength_0_is_neutral_and_1_changes_nothing() -> None:
    tables = Recipe(config()).build(snapshot(SHORT, LONG))
    assert (tables.with_strength(0.0).weights_V == 1).all()
    assert tables.with_strength(1.0) is tables


def test_terms_are_lifted_also_unseen_ones_but_not_those_too_common() -> None:
    long = [*LONG[:7], 0.0]
    plain = Recipe(config()).build(snapshot(SHORT, long)).weights_V
    terms = Terms({"rare": (6,), "new": (7,), "the": (0,)}, 4.0, 0.2)
    lifted = Recipe(config(), terms=terms).build(snapshot(SHORT, long)).weights_V
    ratio = lifted / plain
    assert ratio[6] / ratio[1] == pytest.approx(5.0)
    assert ratio[7] / ratio[1] == pytest.approx(5.0)
    assert ratio[0] / ratio[1] == pytest.approx(1.0)
    share = np.array(long) / sum(long)
    told = terms.describe(share)
    assert "3 terms, 3 tokens, times 5" in told
    assert "1 tokens are too common" in told
    assert "nothing is left of the" in told


class Letters:
    """A token a letter; a space is token 0."""

    def encode_batch(self, texts: Sequence[str]) -> TokenBatch:
        rows = [[ord(letter) % 32 for letter in text] for text in texts]
        lengths = np.array([len(row) for row in rows], np.int64)
        return TokenBatch(np.array([id_ for row in rows for id_ in row], np.int32), lengths)


def test_terms_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "terms.txt"
    file.write_text("# names\nab  # a word\n\ncab\nab\n")
    terms = Terms.load(str(file), Letters(), 2.0, 1.0)
    assert terms.tokens == {"ab": (1, 2, 0), "cab": (3, 1, 2, 0)}
    file.write_text("c#\t# a language\n#ab\n")
    assert list(Terms.load(str(file), Letters(), 2.0, 1.0).tokens) == ["c#"]


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "can't be read"), (b"# nothing\n\n", "holds no term"), (b"\xff\xfe\xfd", "not UTF-8")],
)
def test_a_bad_terms_file_is_one_line(tmp_path: Path, content: bytes | None, says: str) -> None:
    file = tmp_path / "terms.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"weights.terms_file: .*{says}"):
        Terms.load(str(file), Letters(), 2.0, 1.0)


def test_a_published_tensor_is_used_as_it_is() -> None:
    mine = np.linspace(0.5, 2.0, S).astype(np.float32)
    bias = {"product": [{"scheme": "logit_adjustment"}]}
    held = snapshot(
        SHORT, LONG, weights={"mine": mine, "bias": mine}, schemes={"mine": {}, "bias": bias}
    )
    tables = Recipe(config(published="mine")).build(held)
    assert tables.weights_V.numpy() == pytest.approx(mine)
    with pytest.raises(ConfigError, match="the snapshot holds bias, mine"):
        Recipe(config(published="other")).build(held)
    with pytest.raises(ConfigError, match="a bias for logits"):
        Recipe(config(published="bias")).build(held)


def test_a_model_with_fewer_ids_than_the_tokenizer_is_refused() -> None:
    with pytest.raises(ConfigError, match="the model has 5 token ids, but the snapshot counts 8"):
        Recipe(config(), vocab_size=5).build(snapshot(SHORT, LONG))


@pytest.mark.parametrize(
    ("factor", "says"),
    [
        ({"scheme": "logit_adjustment"}, "set loss.kind = logit_adjustment"),
        ({"scheme": "idf", "params": {"power": 1.0}}, "idf takes none"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused_before_there_is_a_snapshot(
    factor: dict, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        check_recipe(config(product=[factor]))


def test_tables_go_to_parts_and_back() -> None:
    tables = Recipe(config()).build(snapshot(SHORT, LONG))
    again = TokenTables.from_parts(tables.tensors(), tables.facts())
    assert again.facts() == tables.facts()
    assert all(torch.equal(again.tensors()[name], value) for name, value in
               tables.tensors().items())  # fmt: skip
    assert (tables.version, tables.epoch, tables.created_at_ms, tables.as_of_ms) == (3, 1, 5, 4)
