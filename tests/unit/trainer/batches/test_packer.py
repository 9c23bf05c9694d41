"""Every token of a document but its first is predicted once; blocks resume from any of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streamfreq.records import TopicPartition
from trainer.batches import Packer, Specials
from trainer.blocks import IGNORED, Block, StreamState

START, END, PAD = 1001, 1002, 1003

Document = tuple[list[int], int]

documents = st.lists(
    st.tuples(st.lists(st.integers(0, 999), max_size=30), st.integers(0, 2)), max_size=12
)
sizes = st.integers(8, 17)
specials = st.sampled_from(
    [Specials(None, None, PAD), Specials(START, None, PAD), Specials(START, END, PAD)]
)


def feed(packer: Packer, items: Sequence[Document], offsets: dict[int, int]):
    for ids, number in items:
        offset = offsets[number] = offsets.get(number, -1) + 1
        yield from packer.add(np.array(ids, np.int32), TopicPartition("t", number), offset + 1)


def pack(items: Sequence[Document], size: int, special: Specials, packing: bool):
    packer = Packer(size, special, packing=packing)
    return [*feed(packer, items, {}), *packer.flush()]


def transitions(blocks: Sequence[Block]) -> list[tuple[int, int]]:
    """Every (token before, token predicted) pair that the blocks teach."""
    pairs = []
    for block in blocks:
        for place in range(1, len(block)):
            if block.labels_T[place] != IGNORED:
                assert block.labels_T[place] == block.ids_T[place]
                assert block.positions_T[place] == block.positions_T[place - 1] + 1
                pairs.append((int(block.ids_T[place - 1]), int(block.ids_T[place])))
    return pairs


@given(items=documents, size=sizes, special=specials, packing=st.booleans())
def test_each_token_but_the_first_is_predicted_once_and_in_order(
    items: list[Document], size: int, special: Specials, packing: bool
) -> None:
    wanted = []
    for ids, _ in items:
        if ids:
            whole = [special.start_id, *ids, special.end_id]
            tokens = [token for token in whole if token is not None]
            wanted += list(itertools.pairwise(tokens))
    blocks = [block for block, _ in pack(items, size, special, packing)]
    assert transitions(blocks) == wanted


@given(items=documents, size=sizes, special=specials, packing=st.booleans())
def test_blocks_have_one_form(
    items: list[Document], size: int, special: Specials, packing: bool
) -> None:
    for block, _ in pack(items, size, special, packing):
        assert len(block) == size
        assert block.labels_T[0] == IGNORED
        assert block.positions_T[0] == 0
        begins = np.flatnonzero(block.positions_T == 0)
        assert (block.labels_T[begins] == IGNORED).all()
        steps = np.diff(block.positions_T)
        assert ((steps == 1) | (block.positions_T[1:] == 0)).all()
        assert (block.labels_T[block.ids_T == PAD] == IGNORED).all()
        assert (block.labels_T != IGNORED).any()


@settings(max_examples=200)
@given(
    items=documents,
    size=sizes,
    special=specials,
    packing=st.booleans(),
    cut=st.integers(0, 40),
)
def test_a_resumed_packer_goes_on_as_if_nothing_had_been(
    items: list[Document], size: int, special: Specials, packing: bool, cut: int
) -> None:
    whole = pack(items, size, special, packing)
    if not whole:
        return
    at = cut % len(whole)
    state = whole[at][1]
    resumed = Packer(size, special, packing=packing)
    blocks = [*resumed.resume(state)]
    counts: dict[int, int] = {}
    left = []
    for ids, number in items:
        offset = counts[number] = counts.get(number, -1) + 1
        if offset >= state.offsets.get(TopicPartition("t", number), 0):
            left.append((ids, number))
    done = {key.partition: offset - 1 for key, offset in state.offsets.items()}
    blocks += [*feed(resumed, left, done), *resumed.flush()]
    expected = whole[at + 1 :]
    assert len(blocks) == len(expected)
    for (block, after), (other, other_after) in zip(blocks, expected, strict=True):
        assert np.array_equal(block.ids_T, other.ids_T)
        assert np.array_equal(block.labels_T, other.labels_T)
        assert np.array_equal(block.positions_T, other.positions_T)
        assert after.offsets == other_after.offsets
        assert (after.records, after.tokens) == (other_after.records, other_after.tokens)
        assert np.array_equal(after.carry_ids, other_after.carry_ids)


def test_a_state_says_what_is_left_of_a_cut_document() -> None:
    packer = Packer(8, Specials(pad_id=PAD))
    partition = TopicPartition("t", 0)
    [(block, state)] = packer.add(np.arange(10, dtype=np.int32), partition, 5)
    assert state == StreamState({partition: 5}, state.carry_ids, 1, 10, {})
    assert state.carry_ids.tolist() == [7, 8, 9]
    assert block.ids_T.tolist() == list(range(8))
    assert [b.ids_T.tolist() for b, _ in packer.flush()] == [[7, 8, 9] + [PAD] * 5]


def test_offsets_without_documents_move_on_with_the_next_block() -> None:
    packer = Packer(8, Specials(pad_id=PAD))
    partition = TopicPartition("t", 0)
    packer.passed(partition, 40, "id-1")
    [(_, state)] = packer.add(np.arange(8, dtype=np.int32), partition, 41)
    assert state.offsets == {partition: 41}
    assert state.topic_ids == {"t": "id-1"}
    assert list(packer.flush()) == []
