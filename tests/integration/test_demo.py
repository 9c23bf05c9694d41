"""`streamfreq demo` as a newcomer runs it: it ends by itself and leaves the whole count."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from PIL import Image

from streamfreq.cli.demo.text import documentation
from streamfreq.snapshots import read_snapshot_file
from trainer.monitors.history import read_history

pytestmark = pytest.mark.redis_server


def demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "streamfreq", "demo", "--folder", str(folder), *options],
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_it_counts_all_of_the_users_file_and_leaves_no_process(tmp_path: Path) -> None:
    text = tmp_path / "own.txt.gz"
    lines = [f"number {n} of some words " + "that come again and again " * 6 for n in range(500)]
    text.write_bytes(gzip.compress("\n".join(lines).encode()))
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    done = demo(tmp_path / "demo", "--text", str(text), "--seconds", "10")
    assert done.returncode == 0, done.stderr
    assert "Try next" in done.stdout
    snapshot = read_snapshot_file(tmp_path / "demo" / "snapshot.safetensors")
    assert list(snapshot.offsets.values()) == [500]
    assert snapshot.records_H[-1] == 500
    log = (tmp_path / "demo" / "daemon.log").read_text()
    assert snapshot.version == int(re.findall(r"published snapshot (\d+)", log)[-1])
    trained = list(read_history(tmp_path / "demo" / "training" / "metrics.jsonl"))
    assert trained[-1]["records"] == 500
    assert trained[-1]["version"] > 0
    assert f"The picture: {tmp_path / 'demo' / 'training.png'}" in done.stdout
    with Image.open(tmp_path / "demo" / "training.png") as image:
        assert image.size == (1200, 960)
    after = {process.pid for process in psutil.Process().children(recursive=True)}
    assert after <= before


@pytest.mark.parametrize(
    ("content", "says"), [(b"a\0b\n" * 9, "this is no text"), (b"\n\n", "holds no text")]
)
def test_what_is_no_text_is_refused_in_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "file.bin"
    file.write_bytes(content)
    done = demo(tmp_path / "demo", "--text", str(file))
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_embedded_text_is_real_and_always_the_same() -> None:
    texts = list(documentation())
    assert sum(map(len, texts)) > 3_000_000
    assert texts == list(documentation())
    assert len(set(texts)) > 0.6 * len(texts)
