"""Bands of token frequency, for reports: head, torso, tail, unseen, emerging.

Shape legend: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.config import MonitorsConfig
from trainer.token_weights import TokenTables

HEAD, TORSO, TAIL, UNSEEN, EMERGING = "head", "torso", "tail", "unseen", "emerging"
SPECIAL = "special"
NAMES = (HEAD, TORSO, TAIL, UNSEEN, EMERGING, SPECIAL)


@dataclass(frozen=True, slots=True, eq=False)
class Bands:
    """band_V: the index in `NAMES` of each token's band, int64 (V,)."""

    band_V: Tensor

    @staticmethod
    def of(tables: TokenTables, config: MonitorsConfig, special_ids: Collection[int] = ()) -> Bands:
        """From the shares of a snapshot; without one every token is unseen.

        head: the most frequent tokens that make up `head_mass` of the stream; tail: the rarest
        seen ones that make up `tail_mass`; torso: between them. Tokens that come
        `emerging_ratio` times more often than in the long run are emerging, whatever else they
        are. Of equal tokens the lower id counts as the more frequent one. special: what stands
        between documents and is in no text, so that no snapshot counts it.
        """
        share_V = tables.share_V.double()
        order_V = torch.argsort(share_V, descending=True, stable=True)
        sorted_V = share_V[order_V]
        mass_before_V = sorted_V.cumsum(0) - sorted_V
        band_V = torch.full_like(order_V, NAMES.index(TORSO))
        of_sorted_V = torch.full_like(order_V, NAMES.index(TORSO))
        of_sorted_V[mass_before_V < config.head_mass] = NAMES.index(HEAD)
        of_sorted_V[mass_before_V >= 1.0 - config.tail_mass] = NAMES.index(TAIL)
        of_sorted_V[sorted_V <= 0] = NAMES.index(UNSEEN)
        band_V[order_V] = of_sorted_V
        emerging_V = (tables.rise_V >= config.emerging_ratio) & (tables.count_V > 0)
        band_V[emerging_V] = NAMES.index(EMERGING)
        band_V[list(special_ids)] = NAMES.index(SPECIAL)
        return Bands(band_V)
