"""What is written comes back to the last bit, and equal values have equal bytes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from streamfreq.codec import (
    Chain,
    CheckpointUpdate,
    DecayedState,
    Gap,
    Revision,
    Snapshot,
    StateChanges,
    decode_checkpoint,
    decode_snapshot,
    encode_snapshot,
    encode_update,
)
from streamfreq.errors import CheckpointRefused
from streamfreq.records import TopicPartition
from tests.conformance.values import make_changes, make_snapshot, make_state, make_update, same

# Any text at all, lone surrogates too: topics of a file source are paths.
TEXT = st.text(st.characters(codec=None), max_size=8)
INT64 = st.integers(0, 2**63 - 1)
PARTITIONS = st.builds(TopicPartition, TEXT, st.integers(0, 2**31 - 1))
GAPS = st.lists(st.builds(Gap, PARTITIONS, INT64, INT64), max_size=3).map(tuple)
LABELS = st.dictionaries(st.integers(0, 2**31), TEXT, max_size=3)
HALF_LIVES = st.lists(
    st.one_of(st.just(float("inf")), st.floats(1e-3, 1e9)), min_size=1, max_size=3, unique=True
).map(tuple)
COUNTS = st.floats(0, 1e300)


def matrices(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    return arrays.arrays(np.float64, shape, elements=COUNTS, fill=st.just(0.0))


@st.composite
def states(draw: st.DrawFn) -> DecayedState:
    half_lives_seconds = draw(HALF_LIVES)
    H, V = len(half_lives_seconds), draw(st.integers(0, 9))
    return DecayedState(
        half_lives_seconds,
        draw(arrays.arrays(np.int64, (H,), elements=st.integers(-(2**62), 2**62))),
        draw(matrices((H, V))),
        draw(st.none() | matrices((H, V))),
        draw(matrices((H,))),
        draw(matrices((H,))),
        draw(st.integers(-1, 2**62)),
    )


@st.composite
def updates(draw: st.DrawFn) -> CheckpointUpdate:
    return CheckpointUpdate(
        partition=draw(PARTITIONS),
        follows=Revision(draw(st.integers(0, 2**53)), ""),
        token=draw(TEXT),
        next_offset=draw(INT64),
        changes=StateChanges.all_of(draw(states())),
        tokenizer_fingerprint=draw(TEXT),
        created_at_ms=draw(INT64),
        gaps=draw(GAPS),
        labels=draw(LABELS),
        topic_id=draw(TEXT),
        topic_partitions=draw(st.integers(0, 2**31)),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    state = draw(states())
    names = draw(st.lists(st.from_regex(r"\A[a-z][a-z._-]{0,5}\Z"), max_size=2, unique=True))
    weights_V = arrays.arrays(np.float32, (state.vocab_size,), elements=st.floats(0, 99, width=32))
    return Snapshot(
        job=draw(TEXT),
        version=draw(st.integers(1, 2**53)),
        created_at_ms=draw(INT64),
        as_of_ms=draw(INT64),
        half_lives_seconds=state.half_lives_seconds,
        counts_HV=state.counts_HV,
        documents_HV=state.documents_HV,
        tokens_H=state.tokens_H,
        records_H=state.records_H,
        offsets=draw(st.dictionaries(PARTITIONS, INT64, max_size=3)),
        tokenizer_name=draw(TEXT),
        tokenizer_fingerprint=draw(TEXT),
        weights={name: draw(weights_V) for name in names},
        schemes={name: {"power": 0.5, "of": [name, None, True]} for name in names},
        gaps=draw(GAPS),
        labels=draw(LABELS),
        streamfreq_version=draw(TEXT),
        epoch=draw(INT64),
    )


@given(updates(), states())
@settings(max_examples=100, deadline=None)
def test_any_checkpoint(update: CheckpointUpdate, state: DecayedState) -> None:
    data = encode_update(update)
    decoded = decode_checkpoint([data])
    assert decoded.revision == update.revision
    assert same(decoded.state, update.changes.applied_to(None))
    for name in ("partition", "next_offset", "tokenizer_fingerprint", "created_at_ms", "gaps"):
        assert same(getattr(decoded, name), getattr(update, name))
    assert (decoded.labels, decoded.topic_id) == (update.labels, update.topic_id)
    assert decoded.topic_partitions == update.topic_partitions
    assert encode_update(update) == data
    assert same(StateChanges.all_of(state).applied_to(None), state)


@given(snapshots())
@settings(max_examples=100, deadline=None)
def test_any_snapshot(snapshot: Snapshot) -> None:
    data = encode_snapshot(snapshot)
    decoded = decode_snapshot(data)
    assert same(decoded, snapshot)
    assert encode_snapshot(decoded) == data


def test_only_used_rows_are_written() -> None:
    state = DecayedState.zeros((60.0,), 100_000, documents=True)
    state.counts_HV[0, [0, 99_999]] = 1.5
    assert state.documents_HV is not None
    state.documents_HV[0, 7] = 0.5
    data = encode_update(make_update(changes=StateChanges.all_of(state)))
    assert len(data) < 2_000
    assert same(decode_checkpoint([data]).state, state)


def test_changes_have_to_follow_what_is_in_front_of_them() -> None:
    first = encode_update(make_update(1))
    second = encode_update(make_update(2, changes=make_changes([1])))
    third = encode_update(make_update(3, changes=make_changes([2])))
    assert decode_checkpoint([first, second, third]).version == 3
    for parts in ([first, third], [second], [third, second], [second, first, third], []):
        with pytest.raises(CheckpointRefused, match=r"^checkpoint: "):
            decode_checkpoint(parts)
    known = decode_checkpoint([first])
    with pytest.raises(CheckpointRefused, match="does not follow"):
        decode_checkpoint([third], known=known)
    assert same(known, decode_checkpoint([first]))
    assert same(
        decode_checkpoint([second, third], known=known), decode_checkpoint([first, second, third])
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"vocab_size": 51},
        {"half_lives_seconds": (1.0, 2.0)},
        {"documents_HU": None},
        {"rows_U": np.array([50], np.int32)},
        {"rows_U": np.array([-1], np.int32)},
    ],
)
def test_changes_of_another_shape_are_refused(wrong: dict[str, Any]) -> None:
    changes = replace(make_changes([1]), **wrong)
    parts = [encode_update(make_update(1)), encode_update(make_update(2, changes=changes))]
    with pytest.raises(CheckpointRefused, match="not a checkpoint of this format"):
        decode_checkpoint(parts)


@pytest.mark.parametrize(
    "view",
    [
        lambda counts_HV: counts_HV[:, ::2],
        lambda counts_HV: counts_HV[::-1],
        lambda counts_HV: np.asfortranarray(counts_HV),
        lambda counts_HV: counts_HV.T,
        lambda counts_HV: counts_HV[:, 1:],
    ],
)
def test_views_are_written_as_they_read(view: Any) -> None:
    """safetensors copies memory as it lies, whatever the strides say."""
    counts_HV = view(np.arange(16.0).reshape(4, 4))
    H, V = counts_HV.shape
    snapshot = make_snapshot(
        half_lives_seconds=tuple(float(h + 1) for h in range(H)),
        counts_HV=counts_HV,
        documents_HV=counts_HV,
        tokens_H=np.ones(2 * H)[::2],
        records_H=np.ones(H),
        weights={"default": np.arange(2 * V, dtype=np.float32)[::2]},
    )
    decoded = decode_snapshot(encode_snapshot(snapshot))
    assert decoded.counts_HV.tolist() == counts_HV.tolist()
    assert decoded.weights["default"].tolist() == list(range(0, 2 * V, 2))
    changes = StateChanges(
        snapshot.half_lives_seconds,
        V,
        True,
        np.arange(2 * H)[::2],
        np.arange(2 * V, dtype=np.int32)[::2] // 2,
        counts_HV,
        None,
        snapshot.tokens_H,
        snapshot.records_H,
        5,
    )
    state = decode_checkpoint([encode_update(make_update(changes=changes))]).state
    assert state.counts_HV.tolist() == counts_HV.tolist()
    assert state.landmarks_H.tolist() == list(range(0, 2 * H, 2))


def test_what_is_decoded_can_be_written_to() -> None:
    """Counting goes on in the decoded arrays, and torch warns of arrays that are read-only."""
    state = decode_checkpoint([encode_update(make_update())]).state
    snapshot = decode_snapshot(encode_snapshot(make_snapshot()))
    for array in (
        *(state.counts_HV, state.documents_HV, state.landmarks_H, state.tokens_H, state.records_H),
        *(snapshot.counts_HV, snapshot.documents_HV, snapshot.weights["default"]),
    ):
        assert array is not None
        assert array.flags.writeable
        assert array.flags.c_contiguous


def test_equal_values_have_equal_bytes() -> None:
    one = make_update(labels={1: "a", 2: "b"})
    other = make_update(labels={2: "b", 1: "a"}, changes=StateChanges.all_of(make_state()))
    assert encode_update(one) == encode_update(other)
    a, b = TopicPartition("a", 0), TopicPartition("b", 1)
    first = make_snapshot(labels={1: "a", 2: "b"}, offsets={a: 1, b: 2})
    second = make_snapshot(labels={2: "b", 1: "a"}, offsets={b: 2, a: 1})
    assert encode_snapshot(first) == encode_snapshot(second)


def test_bytes_are_the_same_in_another_process() -> None:
    program = (
        "import hashlib; from streamfreq.codec import encode_snapshot, encode_update;"
        "from tests.conformance.values import make_snapshot, make_update;"
        "print(hashlib.sha256(encode_update(make_update())"
        " + encode_snapshot(make_snapshot())).hexdigest())"
    )
    sums = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(sums) == 1


@given(
    st.lists(st.integers(0, 1_000), min_size=1, max_size=60),
    st.floats(0.75, 1.0),
    st.integers(0, 1_000),
)
def test_what_is_stored_and_written_is_bounded_by_what_changed(
    changes: list[int], patience: float, used: int
) -> None:
    """A state of `used` rows, of which each commit changes some."""
    chain = Chain(used)
    written = 0
    for rows in (min(rows, used) for rows in changes):
        whole = chain.full_for(rows, patience)
        part = replace(make_changes(range(used if whole else rows)), whole=whole)
        written += len(part.rows_U)
        chain = chain.then(part)
        assert chain.whole_rows == used
        assert chain.changed_rows <= used
    changed = sum(min(rows, used) for rows in changes)
    # The last whole part has not paid for itself yet.
    assert written <= (1 + 1 / patience) * changed + used
