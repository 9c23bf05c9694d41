"""The fast engine: gigatoken, its caches kept below a bound, its ids checked against a reference.

gigatoken 0.10 remembers every distinct word it has seen, per thread and for ever. This engine
measures the growth of the heap over each call and builds the tokenizer anew when the caches may
have grown beyond the bound: 0.1 s for a vocabulary of 50,000 tokens, 0.35 s for 129,000.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from streamfreq.errors import ConfigError, DataRefused
from streamfreq.records import Int64Array, TokenBatch
from streamfreq.tokenization.engines import (
    Engine,
    chunks,
    failures_as_data_refused,
    is_panic,
    one_line,
)
from streamfreq.tokenization.guard import GuardedEngine
from streamfreq.tokenization.heap import heap_in_use, return_free_pages
from streamfreq.tokenization.probes import probe_texts

if TYPE_CHECKING:
    import gigatoken

    from streamfreq.config import TokenizerConfig

log = logging.getLogger("streamfreq.tokenization")

THREAD_BYTES = 5 << 20
"""What each thread's cache takes when empty (measured: 4.2 MB); not counted as growth."""

UNMEASURED = 7
"""Up to so many times the characters of a measured call are charged by estimate after it, while the
caches grow slowly: to measure the heap, malloc walks over all of its free blocks (milliseconds in a
large process)."""

BYTES_PER_ID = 64
"""Growth charged per id where the heap can't be measured: more than new words of two ids take."""


class GigatokenEngine:
    """gigatoken with bounded caches.

    A call that fails inside the library leaves nothing behind: the tokenizer is built anew before
    the next one. (A text that is no Unicode never gets inside.)
    """

    name = "gigatoken"

    def __init__(
        self,
        build: Callable[[], gigatoken.Tokenizer],
        max_cache_bytes: int,
        threads: int = 0,
    ) -> None:
        """`build` makes a fresh tokenizer; `threads`: 0 all cores, 1 the calling thread only."""
        self._build = build
        self._parallel = None if threads == 0 else threads > 1
        self._bound = max_cache_bytes + THREAD_BYTES * (threads or os.cpu_count() or 1)
        self._lock = threading.Lock()
        self._tokenizer: gigatoken.Tokenizer | None = None
        self._growth = 0
        self._growth_per_character = 0.0
        self._unmeasured = 0
        self.rebuilds = 0
        """How many times the tokenizer was built anew to drop its caches."""
        self._renew()

    @property
    def cache_bytes(self) -> int:
        """How much the caches have grown since the tokenizer was built, estimated from above."""
        return self._growth

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of each text; the GIL is released while gigatoken works."""
        with self._lock:
            return TokenBatch.concatenate([self._encode(chunk) for chunk in chunks(texts)])

    def _encode(self, texts: list[str]) -> TokenBatch:
        if self._tokenizer is None:
            self._renew()
        assert self._tokenizer is not None
        size = sum(map(len, texts))
        before = None if size <= self._unmeasured else heap_in_use()
        try:
            with failures_as_data_refused(self.name):
                batch = _copy_out(self._tokenizer.encode_batch(texts, parallel=self._parallel))
        except DataRefused as error:
            if not isinstance(error.__cause__, UnicodeError | TypeError):
                self._tokenizer = None
            raise
        self._charge(before, size, batch)
        if self._growth > self._bound:
            log.debug("gigatoken: caches of %.0f MB dropped", self._growth / 2**20)
            self._tokenizer = None
            self._renew()
            self.rebuilds += 1
        return batch

    def _charge(self, before: int | None, size: int, batch: TokenBatch) -> None:
        """Add a call's growth of the heap, less its result; measured, or as the last one measured.

        Never negative: memory that another thread frees meanwhile does not hide what the caches
        took. Memory that another thread takes meanwhile only makes the next rebuild come earlier.
        """
        if size <= self._unmeasured:
            self._unmeasured -= size
            self._growth += round(self._growth_per_character * size)
            return
        after = heap_in_use()
        if before is None or after is None:
            self._growth += BYTES_PER_ID * len(batch.ids_N)
            return
        grown = max(0, after - before - batch.ids_N.nbytes - batch.lengths_R.nbytes)
        self._growth += grown
        self._growth_per_character = grown / max(1, size)
        room = max(0, self._bound - self._growth)
        self._unmeasured = size * min(UNMEASURED, room // (8 * max(1, grown)))

    def _renew(self) -> None:
        return_free_pages()
        self._tokenizer = self._build()
        self._growth = 0
        self._unmeasured = 0


def _copy_out(rows: object) -> TokenBatch:
    """The ids of an awkward array of lists, copied, so that its over-sized buffers are freed."""
    layout = rows.layout  # type: ignore[attr-defined]
    offsets: Int64Array = np.asarray(layout.offsets.data, np.int64)
    ids = np.asarray(layout.content.data)[offsets[0] : offsets[-1]]
    return TokenBatch(ids.astype(np.int32), np.diff(offsets))


def choose_engine(
    config: TokenizerConfig,
    reference: Engine,
    build: Callable[[], gigatoken.Tokenizer] | None,
    look_alikes: Sequence[str] = (),
) -> Engine:
    """gigatoken where it gives the same ids as `reference`, else the reference.

    `build` is None for a format that gigatoken can't read. `look_alikes` are the texts of special
    and added tokens, which must come out alike too.

    Raises ConfigError when the configuration insists on gigatoken and it does not fit.
    """
    if config.engine == "reference":
        return reference
    fast, reason = _checked(config, reference, build, look_alikes)
    if fast is not None:
        return fast
    if config.engine == "gigatoken":
        raise ConfigError(
            f"tokenizer.engine: gigatoken can't be used for {config.path}: {reason};"
            " set engine to auto or reference"
        )
    log.info("%s: %s does the work, not gigatoken: %s", config.path, reference.name, reason)
    return reference


def _checked(
    config: TokenizerConfig,
    reference: Engine,
    build: Callable[[], gigatoken.Tokenizer] | None,
    look_alikes: Sequence[str],
) -> tuple[Engine | None, str]:
    """The fast engine, or None and why not."""
    if build is None:
        return None, "it does not read this format"
    try:
        fast = GigatokenEngine(build, config.max_cache_mb << 20, config.threads)
    except ImportError:
        return None, "it is not installed"
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        return None, one_line(error).partition(" Location:")[0]
    guarded = GuardedEngine(fast, reference)
    differing = first_difference(reference, guarded, probe_texts(look_alikes))
    if differing is not None:
        return None, f"the self-check found other ids for the text {differing[:60]!r}"
    return guarded, ""


def first_difference(one: Engine, other: Engine, texts: Sequence[str]) -> str | None:
    """The first text that two engines encode differently (or one of them not at all), or None."""
    try:
        a, b = one.encode(texts), other.encode(texts)
    except DataRefused:
        return next((text for text in texts if not _alike(one, other, text)), None)
    if np.array_equal(a.lengths_R, b.lengths_R) and np.array_equal(a.ids_N, b.ids_N):
        return None
    for index, text in enumerate(texts):
        left, right = a.slice(index, index + 1), b.slice(index, index + 1)
        if not np.array_equal(left.ids_N, right.ids_N):
            return text
    return texts[0]


def _alike(one: Engine, other: Engine, text: str) -> bool:
    """Whether both engines give the same ids for `text`, or both refuse it."""
    results: list[list[int] | None] = []
    for engine in (one, other):
        try:
            results.append(engine.encode([text]).ids_N.tolist())
        except DataRefused:
            results.append(None)
    return results[0] == results[1]
