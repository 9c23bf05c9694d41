"""A progress bar over bytes read, on stderr, where a person looks at it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

Advance = Callable[[int], None]
"""Told how many more bytes have been read."""


@contextmanager
def progress(files: Sequence[Path]) -> Iterator[Advance]:
    """A bar for reading `files`; nothing is shown when stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("counting"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=_total(files))
        yield lambda bytes_: bar.advance(task, bytes_)


def _total(files: Sequence[Path]) -> int | None:
    """Bytes of all files; None when that can't be known (stdin, a pipe)."""
    if not all(path.is_file() for path in files):
        return None
    return sum(path.stat().st_size for path in files)
