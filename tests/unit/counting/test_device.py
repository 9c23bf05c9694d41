from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from streamfreq import counting
from streamfreq.counting import pick_device
from streamfreq.errors import ConfigError


def test_cpu_is_always_there() -> None:
    assert pick_device("cpu") == "cpu"


def test_auto_takes_what_is_there() -> None:
    assert pick_device("auto") == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["gpu", "", "CPU", "cuda:", "cuda:x", "cuda:-1", "mps", "cpu:0"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(ConfigError, match="one of auto, cpu, cuda, cuda:N"):
        pick_device(name)


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="use auto or cpu"):
        pick_device("cuda:99")


def test_everything_but_the_counters_works_without_torch() -> None:
    code = (
        "import sys; from streamfreq.counting import merge, decay_to, EventTimes; "
        "import streamfreq.weighting; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_all_names_exist() -> None:
    for name in counting.__all__:
        assert getattr(counting, name)
    with pytest.raises(AttributeError, match="no_such"):
        _ = counting.no_such
