"""Exports are whole, say where they are from, and do not pile up."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from streamfreq.errors import ConfigError
from trainer.export import PROVENANCE_FILE, export_model, git_revision


def write(folder: Path) -> None:
    (folder / "config.json").write_text("{}")


def test_the_last_exports_stay_with_their_origin(tmp_path: Path) -> None:
    for step in (5, 100, 20):
        export_model(tmp_path, step, 2, {"step": step}, write)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-0000000020",
        "step-0000000100",
    ]
    newest = tmp_path / "step-0000000020"
    assert json.loads((newest / PROVENANCE_FILE).read_text()) == {"step": 20}
    assert (newest / "config.json").is_file()


def test_a_writer_that_fails_leaves_no_export(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(ConfigError, match="No space left on device"):
        export_model(tmp_path, 1, 2, {}, fail)
    export_model(tmp_path, 1, 2, {}, write)
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000000001"]


def test_the_git_revision_tells_changes(tmp_path: Path) -> None:
    assert git_revision(tmp_path) == ""

    def git(*words: str) -> None:
        names = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *names, *words], check=True)

    git("init", "-q")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-qm", "one")
    revision = git_revision(tmp_path)
    assert len(revision) == 40
    (tmp_path / "file").write_text("two")
    assert git_revision(tmp_path) == f"{revision}+changes"
