"""Memory of the fast tokenizer engine while it reads words it has never seen, for a while.

    python benchmarks/tokenizer_soak.py --seconds 60

Two processes read the same text side by side: one with the bound on the engine's caches
(`tokenizer.max_cache_mb`), one without. The table has the resident memory of each over time, in MB.
`--tokenizer` takes any path that gigatoken supports; the default is a small byte-level BPE that is
trained on this project's own sources.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

UNBOUNDED_MB = 1 << 20
TEXTS = 1_000
TEXT_BYTES = 400


def new_words(seed: int) -> Iterator[list[str]]:
    """Batches of texts of random letters: hardly any word comes twice."""
    generator = np.random.default_rng(seed)
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz   ", np.uint8)
    while True:
        content = letters[generator.integers(len(letters), size=TEXTS * TEXT_BYTES)].tobytes()
        yield [
            content[start : start + TEXT_BYTES].decode()
            for start in range(0, len(content), TEXT_BYTES)
        ]


def train_small_tokenizer(folder: Path) -> Path:
    """A byte-level BPE of 4,096 tokens, trained on the Python files beside this one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4096, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    files = Path(__file__).resolve().parents[1].glob("streamfreq/**/*.py")
    tokenizer.train_from_iterator((file.read_text() for file in sorted(files)), trainer)
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def soak(path: str, max_cache_mb: int, seconds: float, points: int) -> None:
    """Read new words for `seconds`; print `points` JSON lines with time, MB read, memory."""
    from streamfreq.config import TokenizerConfig
    from streamfreq.tokenization import load_tokenizer

    tokenizer = load_tokenizer(
        TokenizerConfig(path=path, engine="gigatoken", threads=1, max_cache_mb=max_cache_mb)
    )
    process, batches = psutil.Process(), new_words(seed=1)
    begin, read, tokens = time.monotonic(), 0, 0
    for point in range(points + 1):
        while time.monotonic() - begin < seconds * point / points:
            batch = next(batches)
            tokens += len(tokenizer.encode_batch(batch).ids_N)
            read += sum(map(len, batch))
        row = {
            "seconds": round(time.monotonic() - begin, 1),
            "read_mb": round(read / 1e6, 1),
            "tokens": tokens,
            "rss_mb": round(process.memory_info().rss / 1e6, 1),
        }
        print(json.dumps(row), flush=True)


def start(path: str, max_cache_mb: int, options: argparse.Namespace) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--child", str(max_cache_mb), "--tokenizer", path]
    command += ["--seconds", str(options.seconds), "--points", str(options.points)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def side_by_side(path: str, options: argparse.Namespace) -> None:
    children = [start(path, mb, options) for mb in (options.max_cache_mb, UNBOUNDED_MB)]
    print(f"{'':>8}  bound of {options.max_cache_mb} MB      no bound")
    print(f"{'seconds':>8}  {'read MB':>8} {'RSS MB':>8}   {'read MB':>8} {'RSS MB':>8}")
    rows: list[list[dict[str, float]]] = []
    for lines in zip(*(child.stdout or () for child in children), strict=True):
        bound, free = (json.loads(line) for line in lines)
        rows.append([bound, free])
        print(
            f"{bound['seconds']:>8}  {bound['read_mb']:>8} {bound['rss_mb']:>8}"
            f"   {free['read_mb']:>8} {free['rss_mb']:>8}",
            flush=True,
        )
    for child in children:
        if child.wait():
            sys.exit(f"a soak ended with {child.returncode}")
    first, last = rows[len(rows) // 4], rows[-1]
    for name, a, b in zip(("bound", "no bound"), first, last, strict=True):
        speed = b["read_mb"] / b["seconds"]
        change = b["rss_mb"] - a["rss_mb"]
        print(f"{name}: from a quarter of the time to the end {change:+.1f} MB, {speed:.1f} MB/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--points", type=int, default=20, help="rows of the table")
    parser.add_argument("--max-cache-mb", type=int, default=64)
    parser.add_argument("--tokenizer", default="")
    parser.add_argument("--child", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        soak(options.tokenizer, options.child, options.seconds, options.points)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = options.tokenizer or str(train_small_tokenizer(Path(folder)))
        side_by_side(path, options)


if __name__ == "__main__":
    main()
