"""A causal language model as the module that training wraps: tokens in, cross entropies out.

Shape legend: B rows, T tokens of a row, D hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from trainer.blocks import IGNORED
from trainer.losses.fused import fused_cross_entropy
from trainer.losses.parts import body_of, head_of
from trainer.losses.path import LossPath


class LanguageModelLoss(nn.Module):
    """The model, and one way from its hidden states to each token's cross entropy.

    DDP and FSDP wrap this module and not the model, so that the head is used inside the wrapped
    forward. The model is a transformers causal language model, or a peft model around one.
    """

    def __init__(self, model: nn.Module, path: LossPath) -> None:
        super().__init__()
        self.model = model
        self.path = path

    def forward(
        self,
        ids_BT: Tensor,
        positions_BT: Tensor,
        labels_BT: Tensor,
        bias_V: Tensor | None = None,
    ) -> Tensor:
        """Cross entropy in nats of each token after the first of a row: (B, T - 1) float32.

        0 where the label is `IGNORED`. Labels are not shifted: labels[t] is predicted from what
        stands before it. No attention mask: transformers isolates the documents of a row by
        their positions, which begin anew with 0.

        With bias_V the cross entropies are those of logits + bias_V, and a second set without
        it, which has no gradient, follows: (2, B, T - 1).
        """
        targets_BT = torch.nn.functional.pad(labels_BT[:, 1:], (0, 1), value=IGNORED)
        inputs = {"input_ids": ids_BT, "position_ids": positions_BT, "use_cache": False}
        losses = self._losses(inputs, targets_BT.reshape(-1), bias_V)
        # FSDP hangs its backward on the output, and refuses a view.
        return losses.reshape(*losses.shape[:-1], *ids_BT.shape)[..., :-1].clone()

    def _losses(self, inputs: dict[str, Any], targets_N: Tensor, bias_V: Tensor | None) -> Tensor:
        """Cross entropies of all B * T positions; the last of each row is ignored.

        The last position stays in, because taking it out would copy all hidden states or logits.
        """
        if self.path.name == "fused":
            hidden_BTD = body_of(self.model)(**inputs).last_hidden_state
            hidden_ND = hidden_BTD.flatten(0, 1)
            head = head_of(self.model)
            if bias_V is None:
                return fused_cross_entropy(hidden_ND, head.weight, head.bias, targets_N)
            bias = bias_V if head.bias is None else head.bias + bias_V
            adjusted_N = fused_cross_entropy(hidden_ND, head.weight, bias, targets_N)
            with torch.no_grad():
                plain_N = fused_cross_entropy(hidden_ND, head.weight, head.bias, targets_N)
            return torch.stack((adjusted_N, plain_N))
        logits_NV = self.model(**inputs).logits.flatten(0, 1).float()
        if bias_V is None:
            return _cross_entropy(logits_NV, targets_N)
        adjusted_N = _cross_entropy(logits_NV + bias_V, targets_N)
        return torch.stack((adjusted_N, _cross_entropy(logits_NV.detach(), targets_N)))


def _cross_entropy(logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(
        logits_NV, targets_N, reduction="none", ignore_index=IGNORED
    )
