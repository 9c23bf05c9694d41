"""Everything per token id that one snapshot gives the trainer, on one device.

Shape legend: V the model's vocabulary, which may be padded beyond the tokenizer's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TokenTables:
    """Tables of one snapshot version; version 0 is neutral: every weight 1, nothing known.

    weights_V: float32, expected weight 1 over the stream; 1 for unseen and padding rows.
    bias_V: float32, log p for logit adjustment (without tau); 0 in neutral tables.
    share_V: float32, p in the longest horizon, not smoothed; 0 for unseen and padding rows.
    draw_share_V: float32, p in the replay's horizon, smoothed and above 0.
    rise_V: float32, how many times more often now than in the long run; 1 where that is unknown.
    count_V: float32, decayed count in the longest horizon.
    """

    version: int
    epoch: int
    created_at_ms: int
    as_of_ms: int
    weights_V: Tensor
    bias_V: Tensor
    share_V: Tensor
    draw_share_V: Tensor
    rise_V: Tensor
    count_V: Tensor

    @staticmethod
    def neutral(vocab_size: int, device: torch.device | str = "cpu") -> TokenTables:
        """What is used while there is no snapshot."""

        def full(value: float) -> Tensor:
            return torch.full((vocab_size,), value, dtype=torch.float32, device=device)

        return TokenTables(
            version=0,
            epoch=0,
            created_at_ms=0,
            as_of_ms=0,
            weights_V=full(1.0),
            bias_V=full(0.0),
            share_V=full(0.0),
            draw_share_V=full(1.0 / vocab_size),
            rise_V=full(1.0),
            count_V=full(0.0),
        )

    @property
    def vocab_size(self) -> int:
        """V."""
        return int(self.weights_V.shape[0])

    def tensors(self) -> dict[str, Tensor]:
        """The tensors by their field names."""
        return {name: getattr(self, name) for name in _TENSORS}

    def facts(self) -> dict[str, int]:
        """The numbers that say which snapshot this is."""
        return {name: getattr(self, name) for name in _FACTS}

    @staticmethod
    def from_parts(tensors: Mapping[str, Tensor], facts: Mapping[str, int]) -> TokenTables:
        """The inverse of `tensors` and `facts`."""
        values: dict[str, Any] = {name: int(facts[name]) for name in _FACTS}
        values |= {name: tensors[name] for name in _TENSORS}
        return TokenTables(**values)

    def to(self, device: torch.device | str, non_blocking: bool = True) -> TokenTables:
        """These tables on a device."""
        moved = {
            name: tensor.to(device, non_blocking=non_blocking)
            for name, tensor in self.tensors().items()
        }
        return TokenTables.from_parts(moved, self.facts())

    def with_strength(self, strength: float) -> TokenTables:
        """Weights blended with 1, 1 + s (w - 1): their expectation over the stream stays 1."""
        if strength == 1.0:
            return self
        return replace(self, weights_V=1.0 + strength * (self.weights_V - 1.0))


_TENSORS = tuple(field.name for field in fields(TokenTables) if field.name.endswith("_V"))
_FACTS = tuple(field.name for field in fields(TokenTables) if not field.name.endswith("_V"))
