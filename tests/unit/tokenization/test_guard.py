from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamfreq.records import TokenBatch
from streamfreq.tokenization.engines import flatten
from streamfreq.tokenization.guard import GuardedEngine, reorder, texts_with_unassigned


class Marking:
    """An engine whose ids are the code points of a text behind a mark of its own."""

    def __init__(self, mark: int) -> None:
        self.name = str(mark)
        self._mark = mark

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        return flatten([[self._mark, *map(ord, text)] for text in texts])


TEXT = st.text(st.characters() | st.sampled_from("a\u0378\U0001fbfb\ufdd0中"), max_size=8)


@given(st.lists(TEXT, max_size=8))
def test_only_texts_with_unassigned_characters_go_to_the_reference(texts: list[str]) -> None:
    expected = [
        [int(any(unicodedata.category(c) == "Cn" for c in text)), *map(ord, text)] for text in texts
    ]
    batch = GuardedEngine(Marking(0), Marking(1)).encode(texts)
    np.testing.assert_array_equal(batch.ids_N, flatten(expected).ids_N)
    np.testing.assert_array_equal(batch.lengths_R, flatten(expected).lengths_R)


def test_every_code_point_is_known_by_its_category() -> None:
    points = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    found = texts_with_unassigned([chr(point) for point in points])
    expected = [unicodedata.category(chr(point)) == "Cn" for point in points]
    np.testing.assert_array_equal(found, expected)


@given(st.permutations([[], [1], [2, 3], [4, 5, 6], [7]]))
def test_reordering_moves_whole_records(rows: list[list[int]]) -> None:
    original = [[], [1], [2, 3], [4, 5, 6], [7]]
    order = np.array([original.index(row) for row in rows], np.int64)
    batch = reorder(flatten(rows), order)
    assert batch.ids_N.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert batch.lengths_R.tolist() == [0, 1, 2, 3, 1]
