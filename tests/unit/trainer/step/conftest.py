from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _fresh_accelerate():
    """Accelerate keeps one state a process; each test has its own."""
    from accelerate.state import AcceleratorState, GradientState

    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
