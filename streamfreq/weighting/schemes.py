"""The schemes: pure functions from counts to raw weights, each with its source.

Only ratios of raw weights matter (the pipeline brings them to a mean of 1), except for
`logit_adjustment`, which is a bias to be added to logits. Every function is finite for counts
from 0 to 1e12 and beyond. Legend: V tokens (any subset of the vocabulary), counts decayed and so
not whole, p a probability.
"""

from __future__ import annotations

import numpy as np

from streamfreq.records import BoolArray, FloatArray

_TINY = 1e-30
"""Counts and probabilities below this are read as this, so that no weight is infinite."""


def probabilities(counts_V: FloatArray, smoothing: float) -> FloatArray:
    """p = (c + s) / (N + s V), additive smoothing (Lidstone 1920); all 0 for no counts at all."""
    total = float(counts_V.sum()) + smoothing * len(counts_V)
    if total <= 0:
        return np.zeros(len(counts_V))
    p_V: FloatArray = (counts_V + smoothing) / total
    return p_V


def frequency(p_V: FloatArray) -> FloatArray:
    """w = p: the normalised frequency, maximum-likelihood unigram model. Frequent tokens up."""
    return p_V.copy()


def log_frequency(counts_V: FloatArray) -> FloatArray:
    """w = log(1 + c): sublinear term frequency. Frequent tokens up.

    Manning, Raghavan, Schuetze, "Introduction to Information Retrieval", 2008, section 6.4.1
    (1 + log tf there; log(1 + c) is its form that is 0 at 0 and fits counts below 1).
    """
    w_V: FloatArray = np.log1p(counts_V)
    return w_V


def idf(documents_V: FloatArray, records: float, smoothing: float) -> FloatArray:
    """w = log((N + s) / (df + s)): inverse document frequency, never below 0. Rare tokens up.

    N records, df of them with the token. Spaerck Jones, "A statistical interpretation of term
    specificity and its application in retrieval", Journal of Documentation 28, 1972.
    """
    df_V = np.maximum(documents_V + smoothing, _TINY)
    w_V: FloatArray = np.log(np.maximum((records + smoothing) / df_V, 1.0))
    return w_V


def inverse_power(p_V: FloatArray, power: float) -> FloatArray:
    """w = p^-a: a = 1 makes every token weigh the same in sum, 0 changes nothing. Rare tokens up.

    With a = 1/2: Mahajan et al., "Exploring the Limits of Weakly Supervised Pretraining", ECCV
    2018; Mikolov et al., NeurIPS 2013, draw words by powers of their frequency.
    """
    w_V: FloatArray = np.maximum(p_V, _TINY) ** -power
    return w_V


def rare_boost(p_V: FloatArray, boost: float, mass: float) -> FloatArray:
    """w = 1 + b for the rarest tokens that make up at most `mass` of the stream, else 1.

    Tokens of the same frequency stand together on one side. Rare tokens up. The piecewise form
    of class re-weighting (King, Zeng, "Logistic Regression in Rare Events Data", 2001).
    """
    order_V = np.argsort(p_V, kind="stable")
    sorted_V = p_V[order_V]
    last_equal_V = np.searchsorted(sorted_V, sorted_V, side="right") - 1
    cumulated_V = np.cumsum(sorted_V)[last_equal_V] if len(p_V) else sorted_V
    w_V = np.ones(len(p_V))
    w_V[order_V] += boost * (cumulated_V <= mass)
    return w_V


def listed_boost(listed_V: BoolArray, boost: float) -> FloatArray:
    """w = 1 + b for the tokens of an explicit list, else 1."""
    return np.where(listed_V, 1.0 + boost, 1.0)


def effective_number(counts_V: FloatArray, beta: float) -> FloatArray:
    """w = (1 - beta) / (1 - beta^c): the inverse of the effective number of samples. Rare up.

    Counts far above 1 / (1 - beta) all weigh the same: choose beta by the counts of the horizon.
    Cui, Jia, Lin, Song, Belongie, "Class-Balanced Loss Based on Effective Number of Samples",
    CVPR 2019.
    """
    exponent_V = np.maximum(counts_V, _TINY) * np.log(beta)
    w_V: FloatArray = (1.0 - beta) / -np.expm1(exponent_V)
    return w_V


def relative_to_median(counts_V: FloatArray) -> FloatArray:
    """Counts in units of the median count of the tokens that have any (1 when none has)."""
    seen_V = counts_V[counts_V > 0]
    median = float(np.median(seen_V)) if len(seen_V) else 1.0
    relative_V: FloatArray = counts_V / max(median, _TINY)
    return relative_V


def exponential(relative_counts_V: FloatArray, amplitude: float, rate: float) -> FloatArray:
    """w = A exp(-T c) + 1: rare tokens up, the rarest most.

    Gu et al., "Token-level Adaptive Training for Neural Machine Translation", EMNLP 2020. Here c
    is relative to the median count, so that A and T do not depend on the amount of traffic.
    """
    w_V: FloatArray = amplitude * np.exp(-rate * relative_counts_V) + 1.0
    return w_V


def chi_square(relative_counts_V: FloatArray, amplitude: float, rate: float) -> FloatArray:
    """w = A c^2 exp(-T c) + 1: highest at c = 2 / T, falling to both sides.

    The same paper as `exponential`: the rarest tokens, which may be noise, are not lifted.
    """
    w_V: FloatArray = amplitude * relative_counts_V**2 * np.exp(-rate * relative_counts_V) + 1.0
    return w_V


def subsampling(p_V: FloatArray, threshold: float) -> FloatArray:
    """w = min(1, sqrt(t / p)): the probability to keep a token. Rare tokens up, to 1 at most.

    Mikolov, Sutskever, Chen, Corrado, Dean, "Distributed Representations of Words and Phrases and
    their Compositionality", NeurIPS 2013, section 2.3.
    """
    w_V: FloatArray = np.minimum(1.0, np.sqrt(threshold / np.maximum(p_V, _TINY)))
    return w_V


def logit_adjustment(p_V: FloatArray, tau: float) -> FloatArray:
    """b = tau log p, to be added to the logits in the training loss. Frequent tokens up.

    Frequent tokens get a head start in the loss, so the bare logits must win on the rare ones.
    Tokens with p = 0 are given the smallest p above 0; all 0 when there is none.
    Menon et al., "Long-tail learning via logit adjustment", ICLR 2021
    (logit-adjusted softmax cross-entropy).
    """
    seen_V = p_V[p_V > 0]
    if not len(seen_V):
        return np.zeros(len(p_V))
    b_V: FloatArray = tau * np.log(np.maximum(p_V, seen_V.min()))
    return b_V


def emergence(
    short_counts_V: FloatArray,
    long_p_V: FloatArray,
    short_total: float,
    prior_count: float,
) -> FloatArray:
    """w = (c + k) / (E + k), E = N p: the rate now against the long-term rate. Rising tokens up.

    c and N are the counts of the short horizon, p the probability in the long one, so E is the
    count that was to be expected. The posterior mean of the relative rate of a Poisson count under
    a Gamma(k, k) prior, whose mean is 1: one stray occurrence of a token with E near 0 gives
    (1 + k) / k and not 1 / E. DuMouchel, "Bayesian Data Mining in Large Frequency Tables", The
    American Statistician 53, 1999, with one gamma in place of two.
    """
    expected_V = short_total * long_p_V
    w_V: FloatArray = (short_counts_V + prior_count) / (expected_V + prior_count)
    return w_V
