"""Snapshot files are there whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from streamfreq.codec import encode_snapshot
from streamfreq.errors import SnapshotRefused, UsageError
from streamfreq.snapshots import read_snapshot_file, write_snapshot_file
from tests.conformance.values import make_snapshot, same


def test_round_trip_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    size = write_snapshot_file(make_snapshot(1), path)
    assert path.read_bytes() == encode_snapshot(make_snapshot(1))
    assert size == path.stat().st_size
    assert same(read_snapshot_file(str(path)), make_snapshot(1))
    write_snapshot_file(make_snapshot(2), str(path))
    assert same(read_snapshot_file(path), make_snapshot(2))
    assert [one.name for one in tmp_path.iterdir()] == ["a.safetensors"]


def test_others_may_read_it_as_the_umask_says(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    previous = os.umask(0o027)
    try:
        write_snapshot_file(make_snapshot(1), path)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_what_can_not_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"no/such/a\.safetensors: can't be written \(No such file"
    ):
        write_snapshot_file(make_snapshot(1), tmp_path / "no/such/a.safetensors")
    folder = tmp_path / "folder"
    (folder / "inside").mkdir(parents=True)
    with pytest.raises(UsageError, match="can't be written"):
        write_snapshot_file(make_snapshot(1), folder)
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]


def test_dies_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.safetensors"
    write_snapshot_file(make_snapshot(1), path)

    def interrupted(source: object, target: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_snapshot_file(make_snapshot(2), path)
    assert same(read_snapshot_file(path), make_snapshot(1))
    assert [one.name for one in tmp_path.iterdir()] == ["a.safetensors"]


def test_what_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        read_snapshot_file(tmp_path / "missing")
    with pytest.raises(UsageError, match="can't be read"):
        read_snapshot_file(tmp_path)
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(encode_snapshot(make_snapshot())[:-1])
    with pytest.raises(SnapshotRefused, match=r"damaged\.safetensors: truncated"):
        read_snapshot_file(damaged)
