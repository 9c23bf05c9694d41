from __future__ import annotations

import doctest

from streamfreq.counting import counters


def test_the_examples_in_docstrings_run() -> None:
    results = doctest.testmod(counters)
    assert results.attempted
    assert not results.failed
