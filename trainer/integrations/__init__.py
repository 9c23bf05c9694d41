"""Live token weights in transformers' own Trainer, and in what is made of it (TRL).

weights = TokenWeights.follow(url, job, tokenizer=path, vocab_size=model.config.vocab_size)
Trainer(..., compute_loss_func=weighted_loss(weights), callbacks=[FollowSnapshots(weights)])
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from trainer.losses import weighted_cross_entropy
from trainer.token_weights import TokenWeights

__all__ = ["FollowSnapshots", "weighted_loss"]

log = logging.getLogger("trainer.integrations")

LossFunction = Callable[..., Tensor]


def weighted_loss(weights: TokenWeights) -> LossFunction:
    """A `compute_loss_func` for transformers.Trainer and trl.SFTTrainer.

    It is sum(w[label] * ce) / num_items_in_batch, with the number of predicted tokens of the whole
    accumulation window that the Trainer counts. Since the expected weight of a token of the
    stream is 1, the loss keeps the scale of the unweighted one; and since that number does not
    depend on the split, neither does the gradient. (A weight sum would be the better
    denominator, but the Trainer does not tell the labels of the other micro-batches.) Without
    the number, as in evaluation, the weights' own sum is the denominator.
    """

    def loss(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        logits_BTV = outputs["logits"] if isinstance(outputs, dict) else outputs.logits
        logits_NV = logits_BTV[:, :-1].flatten(0, 1)
        targets_N = labels[:, 1:].flatten().to(logits_NV.device)
        weights_V = weights.weights.to(logits_NV.device)
        return weighted_cross_entropy(
            logits_NV, targets_N, weights_V, denominator=_number(num_items_in_batch, logits_NV)
        )

    return loss


def _number(count: Any, like: Tensor) -> Tensor | None:
    if count is None:
        return None
    return torch.as_tensor(count, dtype=torch.float32, device=like.device)


class FollowSnapshots(TrainerCallback):
    """Swaps in the newest weights at the beginning of each step, and logs what is in use.

    Every process follows for itself, so with several of them a swap may come a step apart.
    """

    def __init__(self, weights: TokenWeights) -> None:
        self._weights = weights

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Between two optimizer steps; nothing waits for the store."""
        if self._weights.refresh():
            log.info("token weights of snapshot %d", self._weights.version)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Add version and age of the snapshot in use to what the Trainer logs."""
        facts: dict[str, Any] = {"snapshot_version": self._weights.version}
        age = self._weights.age_seconds
        if age is not None:
            facts["snapshot_age_seconds"] = round(age, 1)
        # The Trainer has put a copy into its history already.
        for target in (logs, state.log_history[-1] if state.log_history else None):
            if target is not None:
                target.update(facts)
