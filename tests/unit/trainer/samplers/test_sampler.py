"""Draws follow the live frequencies, in the main process, and go on after a resume."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from trainer.samplers import FrequencyAwareSampler
from trainer.token_weights import TokenTables

V = 8
EXAMPLES = [[token] * (1 + token % 3) for token in range(V)]


def tables(rare: int, version: int = 1) -> TokenTables:
    share = torch.full((V,), 1.0)
    share[rare] = 1e-4
    neutral = TokenTables.neutral(V)
    facts = {**neutral.facts(), "version": version}
    return TokenTables.from_parts({**neutral.tensors(), "draw_share_V": share / share.sum()}, facts)


class Live:
    """Tables that somebody changes between two draws."""

    def __init__(self, first: TokenTables) -> None:
        self.tables = first
        self.coming: TokenTables | None = None

    def refresh(self) -> bool:
        if self.coming is None:
            return False
        self.tables, self.coming = self.coming, None
        return True


class Examples(Dataset):
    def __len__(self) -> int:
        return V

    def __getitem__(self, index: int) -> int:
        return index


def test_the_rarest_example_is_drawn_most() -> None:
    sampler = FrequencyAwareSampler(EXAMPLES, num_samples=4000, alpha=1.0)
    sampler.use(tables(rare=5))
    counts = np.bincount(list(sampler), minlength=V)
    assert counts[5] > 0.99 * 4000
    sampler.use(TokenTables.neutral(V))
    counts = np.bincount(list(sampler), minlength=V)
    assert counts == pytest.approx(np.full(V, 500), abs=120)


def test_weights_are_means_over_an_examples_tokens() -> None:
    ids = [[0, 1], [], [1, 1, 1], [2]]
    sampler = FrequencyAwareSampler(ids)
    assert sampler._example_weights(np.array([1.0, 3.0, 7.0])).tolist() == [2.0, 0.0, 3.0, 7.0]


@pytest.mark.parametrize("workers", [0, 2])
def test_new_weights_reach_a_loader_in_the_middle_of_a_round(workers: int) -> None:
    live = Live(tables(rare=1))
    sampler = FrequencyAwareSampler(EXAMPLES, live, num_samples=3000, alpha=1.0)
    seen: list[int] = []
    for batch in DataLoader(Examples(), batch_size=10, sampler=sampler, num_workers=workers):
        seen += batch.tolist()
        if len(seen) == 1000:
            live.coming = tables(rare=6, version=2)
    assert len(seen) == 3000
    assert np.bincount(seen[:1000], minlength=V)[1] > 980
    # What the loader has fetched ahead and the 64 drawn at once may still be the old ones.
    assert np.bincount(seen[-1800:], minlength=V)[6] > 1770


@pytest.mark.parametrize("taken", [0, 1, 63, 64, 65, 150])
def test_draws_go_on_after_a_resume(taken: int) -> None:
    whole = FrequencyAwareSampler(EXAMPLES, num_samples=200, seed=4)
    expected = list(whole)
    first = FrequencyAwareSampler(EXAMPLES, num_samples=200, seed=4)
    iterator = iter(first)
    begun = [next(iterator) for _ in range(taken)]
    second = FrequencyAwareSampler(EXAMPLES, num_samples=200, seed=77)
    second.load_state_dict(first.state_dict())
    assert begun + list(second) == expected


def test_processes_share_one_sequence_of_draws() -> None:
    alone = list(FrequencyAwareSampler(EXAMPLES, num_samples=256, seed=2))
    parts = [
        list(FrequencyAwareSampler(EXAMPLES, num_samples=256, seed=2, rank=rank, count=2))
        for rank in range(2)
    ]
    assert [len(part) for part in parts] == [128, 128]
    merged = [index for pair in zip(*parts, strict=True) for index in pair]
    assert sorted(merged) == sorted(alone)


def test_ids_beyond_the_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="hold the id 7, but the tables have 4"):
        FrequencyAwareSampler(EXAMPLES).use(TokenTables.neutral(4))
    with pytest.raises(ValueError, match="no example"):
        FrequencyAwareSampler([])
