"""Open vocabulary: Unicode words hashed into a fixed number of buckets.

One row is the hashing trick (Weinberger et al. 2009): V = 2^k, words that share a bucket share a
count. With d rows it is a count-min sketch (Cormode, Muthukrishnan 2005): V = d * 2^k, word w has
the d ids r * 2^k + h_r(w), and the least of their counts is its estimate, never below the true one.

Shape legend: H horizons, V vocabulary, W words, D rows, N ids.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from itertools import chain

import numpy as np

from streamfreq.config import TokenizerConfig
from streamfreq.records import FloatArray, Int32Array, Int64Array, TokenBatch
from streamfreq.tokenization import segmenting
from streamfreq.tokenization.engines import failures_as_data_refused
from streamfreq.tokenization.fingerprints import fingerprint
from streamfreq.tokenization.segmenting import Segmenter

BYTES_PER_WORD = 320
"""What a remembered word takes: the string, the entry of the dictionary, its ids and count."""

HALVE_AFTER_WORDS = 1 << 22
"""Local counts halve after so many words, so that names follow what the stream says now."""

_MAX_ROWS = 8
_BYTES_PER_ROW = 4


def estimate(counts_HV: FloatArray, ids_WD: Int32Array) -> FloatArray:
    """Count-min estimate of the counts of W words, shape (H, W): the least over each word's rows.

    >>> estimate(np.array([[5.0, 1.0, 9.0, 2.0]]), np.array([[0, 3], [1, 2]], np.int32))
    array([[2., 1.]])
    """
    least: FloatArray = counts_HV[:, ids_WD].min(axis=2)
    return least


class BucketHash:
    """A stable seeded hash of words: BLAKE2b with the seed as its key, one part per row.

    The same word has the same buckets in every process and on every machine.
    """

    def __init__(self, buckets_log2: int, rows: int, seed: int) -> None:
        self._mask = (1 << buckets_log2) - 1
        self._rows = rows
        self._row_starts = [row << buckets_log2 for row in range(rows)]
        self._key = hashlib.sha256(b"streamfreq words %d" % seed).digest()

    def ids(self, word: str) -> list[int]:
        """The `rows` ids of a word."""
        digest = hashlib.blake2b(
            word.encode(), digest_size=_MAX_ROWS * _BYTES_PER_ROW, key=self._key
        ).digest()
        return [
            start + (int.from_bytes(digest[4 * row : 4 * row + 4], "little") & self._mask)
            for row, start in enumerate(self._row_starts)
        ]


class WordMemory(dict[str, int]):
    """Words seen lately, in a bounded number: word -> position, with its ids and local count.

    When it is full all but the `keep` heaviest words are forgotten. Guarantee: at most
    `capacity` words (but no fewer than twice `keep`) remain after `make_room`.
    """

    def __init__(self, bucket_hash: BucketHash, rows: int, capacity: int, keep: int) -> None:
        super().__init__()
        self._hash = bucket_hash
        self._capacity = max(capacity, 2 * keep)
        self._keep = keep
        self._since_halving = 0
        self._words: list[str] = []
        self._fresh: list[list[int]] = []
        self._ids_WD = np.empty((0, rows), np.int32)
        self._counts_W = np.zeros(0, np.float64)
        self._names: dict[int, str] | None = {}

    def __missing__(self, word: str) -> int:
        ids = self._hash.ids(word)
        self._fresh.append(ids)
        self._words.append(word)
        position = self[word] = len(self)
        return position

    def count(self, words: list[str]) -> Int32Array:
        """The ids of `words`, shape (W, D); each is counted once for its name."""
        positions_W: Int64Array = np.fromiter(map(self.__getitem__, words), np.int64, len(words))
        self._settle()
        np.add.at(self._counts_W, positions_W, 1.0)
        self._since_halving += len(words)
        self._names = None
        ids_WD: Int32Array = self._ids_WD[positions_W]
        return ids_WD

    def make_room(self) -> None:
        """Halve the local counts when it is time; forget light words when there are too many."""
        if self._since_halving >= HALVE_AFTER_WORDS:
            self._counts_W *= 0.5
            self._since_halving = 0
        if len(self) <= self._capacity:
            return
        kept_W = self._heaviest()
        self._words = [self._words[position] for position in kept_W.tolist()]
        self.clear()
        self.update((word, position) for position, word in enumerate(self._words))
        self._ids_WD = self._ids_WD[kept_W]
        self._counts_W = self._counts_W[kept_W]

    def names(self) -> dict[int, str]:
        """id -> the heaviest word of its bucket, for the buckets of the `keep` heaviest words."""
        self._settle()
        if self._names is None:
            self._names = {}
            for position in self._heaviest().tolist():
                for token_id in self._ids_WD[position].tolist():
                    self._names.setdefault(token_id, self._words[position])
        return self._names

    def _heaviest(self) -> Int64Array:
        """Positions of the `keep` heaviest words, heaviest first, older ones first among equals."""
        counts_W = self._counts_W[: len(self)]
        if len(counts_W) > 4 * self._keep > 0:
            least = np.partition(counts_W, -self._keep)[-self._keep]
            candidates_W = np.flatnonzero(counts_W >= least)
        else:
            candidates_W = np.arange(len(counts_W))
        order = np.argsort(-counts_W[candidates_W], kind="stable")
        heaviest_W: Int64Array = candidates_W[order[: self._keep]]
        return heaviest_W

    def _settle(self) -> None:
        """Move the ids of new words into the array, which grows by half at a time."""
        if not self._fresh:
            return
        size = len(self)
        first = size - len(self._fresh)
        if size > len(self._ids_WD):
            room = size + size // 2
            ids_WD = np.empty((room, self._ids_WD.shape[1]), np.int32)
            ids_WD[:first] = self._ids_WD[:first]
            self._ids_WD = ids_WD
            self._counts_W = np.concatenate([self._counts_W[:first], np.zeros(room - first)])
        self._ids_WD[first:size] = self._fresh
        self._counts_W[first:size] = 0.0
        self._fresh.clear()


class WordsTokenizer:
    """Words of a text, hashed; see the module's docstring for what the ids mean."""

    name = "words"
    engine = "words"

    def __init__(self, config: TokenizerConfig, segment: Segmenter, segmenter_name: str) -> None:
        self.ids_per_token = config.words_rows
        self.vocab_size = config.words_rows << config.words_buckets_log2
        self.fingerprint = fingerprint(
            "words",
            {
                "buckets_log2": config.words_buckets_log2,
                "rows": config.words_rows,
                "seed": config.words_seed,
                "segmenter": segmenter_name,
                "rules": segmenting.RULES,
            },
        )
        self._segment = segment
        self._hash = BucketHash(config.words_buckets_log2, config.words_rows, config.words_seed)
        capacity = (config.max_cache_mb << 20) // BYTES_PER_WORD
        self._memory = WordMemory(self._hash, config.words_rows, capacity, config.words_labels)
        self._lock = threading.Lock()

    def encode_batch(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of each text's words, `ids_per_token` in a row for each word."""
        with self._lock, failures_as_data_refused(self.name):
            rows = [self._segment(text) for text in texts]
            words_R = np.fromiter(map(len, rows), np.int64, len(rows))
            words = list(chain.from_iterable(rows))
            ids_WD = self._memory.count(words)
            self._memory.make_room()
        return TokenBatch(ids_WD.reshape(-1), words_R * self.ids_per_token)

    def word_ids(self, words: Sequence[str]) -> Int32Array:
        """The ids of words, shape (W, D), for `estimate`; leaves the local counts alone."""
        ids_WD: Int32Array = np.array([self._hash.ids(word) for word in words], np.int32)
        return ids_WD.reshape(len(words), self.ids_per_token)

    def token_text(self, token_id: int) -> str:
        """The heaviest word of a bucket, where this process knows one; else `#id`."""
        with self._lock:
            return self._memory.names().get(token_id, f"#{token_id}")

    def labels(self) -> dict[int, str]:
        """id -> word for the buckets of the heaviest words that this process has seen lately."""
        with self._lock:
            return dict(self._memory.names())


def load_words(config: TokenizerConfig) -> WordsTokenizer:
    """The words tokenizer of `config`; raises ConfigError when jieba is wanted but missing."""
    if config.words_segmenter == "jieba":
        segment = segmenting.jieba_segmenter()
        return WordsTokenizer(config, segment, f"jieba {segmenting.jieba_version()}")
    return WordsTokenizer(config, segmenting.words_with_bigrams, "bigrams")
