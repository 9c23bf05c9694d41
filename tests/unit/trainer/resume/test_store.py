"""A resume state is whole or not there, whatever moment the process dies at."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from streamfreq.errors import ConfigError, DataRefused
from trainer.resume import ResumeStore, read_parts, write_parts
from trainer.resume.parts import ARRAYS_FILE, FACTS_FILE

LAST_STEP = 6


class ProcessDiedError(BaseException):
    """In place of SIGKILL: nothing of ours may catch it."""


def dying_at(step: int):
    def reach(reached: int) -> None:
        if reached == step:
            raise ProcessDiedError

    return reach


def save(folder: Path, step: int, reach=lambda step: None, keep: int = 2) -> None:
    def write_weights(target: Path) -> None:
        (target / "model.bin").write_bytes(b"weights of %d" % step)

    ResumeStore(folder, keep, reach).save(step, {"a": {"step": step}}, write_weights)


@pytest.mark.parametrize("died_at", range(1, LAST_STEP + 1))
@pytest.mark.parametrize("keep", [1, 2])
def test_a_process_that_dies_while_saving_leaves_a_whole_state(
    tmp_path: Path, died_at: int, keep: int
) -> None:
    save(tmp_path, 10, keep=keep)
    with pytest.raises(ProcessDiedError):
        save(tmp_path, 20, dying_at(died_at), keep=keep)
    store = ResumeStore(tmp_path, keep)
    store.clean()
    latest = store.latest()
    assert latest is not None
    assert latest.step == (20 if died_at > 4 else 10)
    assert latest.parts() == {"a": {"step": latest.step}}
    content = (latest.weights_folder / "model.bin").read_bytes()
    assert content == b"weights of %d" % latest.step
    assert not list(tmp_path.glob(".*"))
    save(tmp_path, 20, keep=keep)
    assert [state.step for state in ResumeStore(tmp_path, keep).states()] == [10, 20][-keep:]


def test_every_numbered_step_can_be_died_at(tmp_path: Path) -> None:
    reached: list[int] = []
    save(tmp_path, 1, reached.append)
    assert reached == list(range(1, LAST_STEP + 1))


def test_the_last_states_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 30, 4):
        save(tmp_path, step, keep=3)
    assert [state.step for state in ResumeStore(tmp_path, 3).states()] == [2, 4, 30]


def test_a_run_that_never_saved_has_no_state(tmp_path: Path) -> None:
    assert ResumeStore(tmp_path / "none", 2).latest() is None


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match="output: the resume state of step 3 can't be written"):
        save(tmp_path / "file" / "deeper", 3)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5)
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text("abc/", min_size=1, max_size=4), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(parts=st.dictionaries(st.text("xyz", min_size=1, max_size=3), values, max_size=3))
def test_values_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, parts: dict
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    write_parts(folder, parts)
    assert read_parts(folder) == parts


@pytest.mark.parametrize(
    "array",
    [
        np.array([], np.int32),
        np.array([[1, 2], [3, 4]], np.int64)[:, ::-1],
        np.array([0.1, -0.0, 1e-310], np.float64),
        np.array([True, False]),
        np.array(7, np.int64),
    ],
)
def test_arrays_and_tensors_keep_type_shape_and_bits(tmp_path: Path, array: np.ndarray) -> None:
    tensor = torch.from_numpy(array.copy())
    write_parts(tmp_path, {"part": {"array": array, "deep": [{"tensor": tensor}]}})
    part = read_parts(tmp_path)["part"]
    back, tensor_back = part["array"], part["deep"][0]["tensor"]
    assert isinstance(back, np.ndarray)
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == np.ascontiguousarray(array).tobytes()
    assert isinstance(tensor_back, torch.Tensor)
    assert torch.equal(tensor_back, tensor)


@pytest.mark.parametrize("damage", ["no arrays", "cut arrays", "cut facts", "no facts"])
def test_a_damaged_state_is_refused_in_one_line(tmp_path: Path, damage: str) -> None:
    write_parts(tmp_path, {"a": {"x": np.arange(9)}})
    name = ARRAYS_FILE if "arrays" in damage else FACTS_FILE
    if damage.startswith("no"):
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:20])
    with pytest.raises(DataRefused, match="delete this folder") as refused:
        read_parts(tmp_path)
    assert str(tmp_path) in str(refused.value)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    write_parts(tmp_path, {})
    stored = json.loads((tmp_path / FACTS_FILE).read_text())
    (tmp_path / FACTS_FILE).write_text(json.dumps({**stored, "format": 99}))
    with pytest.raises(DataRefused, match="newer version"):
        read_parts(tmp_path)
