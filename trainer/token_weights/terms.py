"""An explicit list of words and phrases, as tokens to be lifted.

Shape legend: V vocabulary of the tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamfreq.errors import ConfigError
from streamfreq.records import FloatArray
from streamfreq.tokenization import Tokenizer

_COMMENT = re.compile(r"(^|\s)#.*")


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms with their tokens; those too common to stand for a term are not lifted.

    tokens: of each term, with and without a space in front. boost: weights are multiplied by
    1 + this. max_share: a token with a larger share of the stream is too common.
    """

    tokens: dict[str, tuple[int, ...]]
    boost: float
    max_share: float

    @staticmethod
    def load(path: str, tokenizer: Tokenizer, boost: float, max_share: float) -> Terms:
        """A word or phrase a line; raises ConfigError for a bad file.

        # begins a comment at the start of a line and behind a space, so C# is a term.
        """
        try:
            lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
        except OSError as error:
            raise ConfigError(
                f"weights.terms_file: {path} can't be read ({error.strerror})"
            ) from None
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"weights.terms_file: {path} is not UTF-8 at byte {error.start}"
            ) from None
        terms = [_COMMENT.sub("", line).strip() for line in lines]
        terms = list(dict.fromkeys(term for term in terms if term))
        if not terms:
            raise ConfigError(f"weights.terms_file: {path} holds no term; write one a line")
        return Terms(_tokens(terms, tokenizer), boost, max_share)

    def lifted(self, share_V: FloatArray) -> FloatArray:
        """The factor of each token (V,): 1 + boost for those of a term, else 1."""
        factors_V = np.ones(len(share_V))
        ids = np.array(sorted({id_ for ids in self.tokens.values() for id_ in ids}), np.int64)
        rare = ids[share_V[ids] <= self.max_share]
        factors_V[rare] = 1.0 + self.boost
        return factors_V

    def describe(self, share_V: FloatArray) -> str:
        """For the log: how many terms and tokens, and which terms lost tokens, or all of them."""
        every = {id_ for ids in self.tokens.values() for id_ in ids}
        common = {id_ for id_ in every if share_V[id_] > self.max_share}
        lost = [term for term, ids in self.tokens.items() if set(ids) <= common]
        text = f"{len(self.tokens)} terms, {len(every)} tokens, times {1 + self.boost:g}"
        if common:
            text += f"; {len(common)} tokens are too common (share above {self.max_share:g})"
        if lost:
            names = ", ".join(lost[:5]) + (", ..." if len(lost) > 5 else "")
            text += f"; nothing is left of {names}"
        return text


def _tokens(terms: Sequence[str], tokenizer: Tokenizer) -> dict[str, tuple[int, ...]]:
    batch = tokenizer.encode_batch([form for term in terms for form in (term, f" {term}")])
    ends = np.cumsum(batch.lengths_R)
    found = {}
    for index, term in enumerate(terms):
        first = int(ends[2 * index] - batch.lengths_R[2 * index])
        ids = batch.ids_N[first : int(ends[2 * index + 1])]
        found[term] = tuple(dict.fromkeys(ids.tolist()))
    return found
