"""Real prose for the demo: the documentation inside the installed Python packages.

Every paragraph of every docstring is one record, package by package, so that the topic of the
stream drifts as it would in the news: graphs, then arrays, then algebra, then tensors.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from streamfreq.errors import UsageError

PACKAGES = ("networkx", "numpy", "sympy", "torch")
"""Installed with streamfreq (torch needs the others), in the order of the replay."""
LIBRARY_PARTS = ("asyncio", "email", "logging", "unittest", "http", "multiprocessing", "xml")
"""Folders of Python's own library that come first."""
MAX_BYTES_PER_PART = 1_300_000
MIN_CHARACTERS = 40

_DOCSTRING = re.compile(r'^[ ]*[rRuU]?"""(.*?)"""', re.DOTALL | re.MULTILINE)
"""A triple-quoted string that begins a line; parsing the files would take ten times as long."""


def documentation() -> Iterator[str]:
    """Paragraphs of several megabytes of English documentation, always in the same order."""
    library = Path(sysconfig.get_path("stdlib"))
    yield from _limited([library / part for part in LIBRARY_PARTS])
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            yield from _limited([Path(spec.submodule_search_locations[0])])


def own_text(path: Path) -> Iterator[str]:
    """The texts of the user's file: plain or compressed lines, JSON lines by their field `text`.

    Raises UsageError for a file that is no text.
    """
    from streamfreq.config import TextConfig, ValueConfig
    from streamfreq.sources.files import read_batches
    from streamfreq.text import TextPipeline

    names = {*path.suffixes}
    value = ValueConfig(format="json" if names & {".json", ".jsonl", ".parquet"} else "text")
    pipeline = TextPipeline(value, TextConfig())
    for batch in read_batches(str(path), None, (value.text_field,)):
        if any(b"\0" in line for line in batch.values if line is not None):
            raise UsageError(f"--text {path}: this is no text; name a .txt, .jsonl, .gz or .zst")
        yield from pipeline.prepare(batch).texts


def _limited(folders: list[Path]) -> Iterator[str]:
    size = 0
    for folder in folders:
        for paragraph in _paragraphs(folder):
            yield paragraph
            size += len(paragraph)
            if size > MAX_BYTES_PER_PART:
                return


def _paragraphs(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        if "tests" in path.parts or "test" in path.parts:
            continue
        for docstring in _docstrings(path):
            for paragraph in docstring.split("\n\n"):
                text = " ".join(paragraph.split())
                if len(text) >= MIN_CHARACTERS and ">>>" not in text:
                    yield text


def _docstrings(path: Path) -> Iterator[str]:
    source = path.read_text(encoding="utf-8", errors="replace")
    for match in _DOCSTRING.finditer(source):
        yield inspect.cleandoc(match[1])
