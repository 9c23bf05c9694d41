"""Ways as child processes, several at once where asked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.ingest_parts.topics import Filled


def start(
    way: str,
    topic: Filled,
    bootstrap: str,
    url: str,
    tokenizer: Path,
    extra: Sequence[str] = (),
) -> subprocess.Popen[str]:
    """One way over one topic, from its start."""
    words = ["--topic", topic.name, "--bootstrap", bootstrap, "--url", url]
    words += ["--tokenizer", str(tokenizer), "--records", str(topic.records)]
    words += ["--partitions", str(topic.partitions), *extra]
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.ingest_parts.ways", way, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result_of(child: subprocess.Popen[str]) -> dict[str, Any]:
    """What it printed; ends the benchmark when it failed."""
    out, err = child.communicate()
    if child.returncode:
        raise SystemExit(f"{' '.join(map(str, child.args))}:\n{err[-3000:]}")
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


def framework(
    python: str, topic: Filled, bootstrap: str, tokenizer: Path, records: int
) -> dict[str, Any] | None:
    """The stream framework's way; None where that Python does not have it."""
    asked = subprocess.run([python, "-c", "import quixstreams, tokenizers"], capture_output=True)
    if asked.returncode:
        return None
    script = Path(__file__).with_name("framework.py")
    file = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
    command = [python, str(script), bootstrap, topic.name, str(file), str(records)]
    return result_of(
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    )
