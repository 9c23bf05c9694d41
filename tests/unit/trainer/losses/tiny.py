"""Tiny models, rows of documents, and an explicit float64 loss to compare with."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from trainer.blocks import IGNORED, Block

V = 61
T = 24
ROWS = 8


def llama(vocabulary: int = V, seed: int = 0, tied: bool = False) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.2,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config)


def gpt2(vocabulary: int = V, seed: int = 0) -> nn.Module:
    """Tied head, biases, learned positions."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=vocabulary,
        n_embd=32,
        n_layer=2,
        n_head=2,
        n_positions=T,
        initializer_range=0.2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )
    return GPT2LMHeadModel(config)


MODELS = {"llama": llama, "gpt2": gpt2}


@dataclass(frozen=True)
class Document:
    """ids, and which of them are labels (the first never is)."""

    ids: list[int]
    labelled: list[bool]


def rows_of_documents(packed: bool, seed: int = 1) -> list[list[Document]]:
    """ROWS rows: several documents each, or one; a part of the labels masked, one row whole."""
    rng = np.random.default_rng(seed)
    rows = []
    for row in range(ROWS):
        lengths = [int(n) for n in rng.integers(2, 9, size=3 if packed else 1)]
        rows.append(
            [
                Document(
                    [int(i) for i in rng.integers(0, V - 1, size=length)],
                    [at > 0 and row != 5 and rng.random() < 0.8 for at in range(length)],
                )
                for length in lengths
            ]
        )
    return rows


def block(documents: Sequence[Document], length: int = T) -> Block:
    """The documents side by side, then padding as a document of its own."""
    used = sum(len(document.ids) for document in documents)
    ids = [i for document in documents for i in document.ids] + [0] * (length - used)
    labels = [
        token if labelled else IGNORED
        for document in documents
        for token, labelled in zip(document.ids, document.labelled, strict=True)
    ] + [IGNORED] * (length - used)
    positions = [at for document in documents for at in range(len(document.ids))]
    positions += list(range(length - used))
    return Block(*(np.asarray(x, np.int32) for x in (ids, labels, positions)))


def row_weights() -> list[float]:
    return [1.0 + 0.25 * row for row in range(ROWS)]


def token_weights(seed: int = 2, vocabulary: int = V) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 0.1 + 3.0 * torch.rand(vocabulary, generator=generator)


def reference_gradients(
    model: nn.Module,
    rows: Sequence[Sequence[Document]],
    rows_weights: Sequence[float],
    weights_V: Tensor,
    bias_V: Tensor | None = None,
    gamma: float = 0.0,
) -> dict[str, Tensor]:
    """Gradients in float64, each document alone, each token by itself."""
    exact = copy.deepcopy(model).double()
    exact.zero_grad()
    total = torch.zeros((), dtype=torch.float64)
    weight_sum = 0.0
    for documents, row_weight in zip(rows, rows_weights, strict=True):
        for document in documents:
            ids = torch.tensor([document.ids])
            logits = exact(input_ids=ids, use_cache=False).logits[0].double()
            for at in range(1, len(document.ids)):
                if not document.labelled[at]:
                    continue
                label = document.ids[at]
                scores = logits[at - 1] if bias_V is None else logits[at - 1] + bias_V.double()
                top = scores.max().detach()
                loss = (scores - top).exp().sum().log() + top - scores[label]
                weight = float(weights_V[label]) * row_weight
                total = total + weight * (1 - (-loss).exp()) ** gamma * loss
                weight_sum += weight
    (total / weight_sum).backward()
    return {n: p.grad for n, p in exact.named_parameters() if p.grad is not None}


def assert_close(found: dict[str, Tensor], exact: dict[str, Tensor], tolerance: float) -> None:
    """Every gradient within tolerance times its largest value."""
    assert found.keys() == exact.keys()
    for name, gradient in exact.items():
        error = (found[name].double() - gradient).abs().max()
        assert error <= tolerance * gradient.abs().max() + 1e-9, (name, float(error))
