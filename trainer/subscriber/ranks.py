"""What the processes of a run say to each other: values and tensors from the main one to all."""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor


class Ranks(Protocol):
    """The processes of a run; rank 0 is the main one. Every process makes the same calls."""

    @property
    def rank(self) -> int: ...  # noqa: D102
    @property
    def count(self) -> int: ...  # noqa: D102
    @property
    def is_main(self) -> bool: ...  # noqa: D102

    def broadcast_object(self, value: Any) -> Any:
        """The main process's value, on all."""
        ...

    def broadcast_tensor(self, tensor: Tensor) -> Tensor:
        """The main process's tensor; the others give one of the same shape, which is filled."""
        ...


class SingleRank:
    """One process alone."""

    rank = 0
    count = 1
    is_main = True

    def broadcast_object(self, value: Any) -> Any:
        """The value itself."""
        return value

    def broadcast_tensor(self, tensor: Tensor) -> Tensor:
        """The tensor itself."""
        return tensor


class DistributedRanks:
    """The default process group of torch.distributed; `device`: where its tensors have to lie."""

    def __init__(self, device: torch.device | str) -> None:
        self._device = torch.device(device)
        self.rank = dist.get_rank()
        self.count = dist.get_world_size()

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def broadcast_object(self, value: Any) -> Any:
        """The main process's value, pickled."""
        values = [value]
        dist.broadcast_object_list(values, src=0, device=self._device)
        return values[0]

    def broadcast_tensor(self, tensor: Tensor) -> Tensor:
        """The main process's tensor."""
        tensor = tensor.to(self._device).contiguous()
        dist.broadcast(tensor, src=0)
        return tensor
