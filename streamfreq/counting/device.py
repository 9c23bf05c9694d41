"""Where the counters live: the name in the configuration made into a device that exists."""

from __future__ import annotations

import re

from streamfreq.errors import ConfigError


def pick_device(name: str) -> str:
    """The torch device for `name`: auto (CUDA when there is one, else cpu), cpu, cuda, cuda:N.

    Raises ConfigError when the name is none of these or the device is not there.
    """
    if name == "cpu":
        return "cpu"
    match = re.fullmatch(r"cuda(?::([0-9]+))?", name)
    if name != "auto" and match is None:
        raise ConfigError(f'counting.device = "{name}": one of auto, cpu, cuda, cuda:N')
    import torch

    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if match is None:
        return "cuda" if devices else "cpu"
    if int(match[1] or 0) >= devices:
        there = f"only cuda:0 to cuda:{devices - 1} are" if devices else "no CUDA device is"
        raise ConfigError(f'counting.device = "{name}": {there} usable here; use auto or cpu')
    return name


def probe_device(device: str) -> None:
    """Put one count on a device that `pick_device` gave; raises ConfigError when it refuses."""
    import torch

    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"counting.device {device} can't hold counts: {reason}") from None


def device_memory_bytes(device: str) -> int:
    """Memory that this process's tensors hold on a CUDA device; 0 on the CPU."""
    if device == "cpu":
        return 0
    import torch

    return torch.cuda.memory_allocated(device)
