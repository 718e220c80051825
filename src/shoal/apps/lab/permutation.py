"""Exact tests of paired runs: that arms differ, that they are equal within a margin; Holm's adjustment over several.

The swarm run is the unit: nodes, tasks and rounds of one run depend on each other and are never drawn apart. Seeds are
paired across arms: a seed means the same weights, questions and evaluation in each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from shoal.apps.lab.intervals import Array, finite

EXACT_UP_TO = 20
"""Pairs whose sign flips are all counted: 2^20 of them."""
FLIPS = 100_000
"""Random sign flips of more pairs than that."""


@dataclass(frozen=True)
class SignFlips:
    """A paired permutation test. `smallest_p` is what these pairs would give if all differed in one direction."""

    p: float
    smallest_p: float
    exact: bool


def sign_flip_test(differences: ArrayLike, *, seed: int = 0) -> SignFlips:
    """The two-sided paired permutation test of the mean difference (Fisher, The Design of Experiments, 1935, 21).

    If the arms do the same, either run of a pair could have come from either arm, so each difference could as well
    have the other sign. p is the share of all 2^n choices of signs whose sum is at least as far from 0 as the one
    observed. Above 20 pairs, (1 + hits) / (1 + 100,000) of random choices (Phipson and Smyth, SAGMB 9, 2010).
    Pairs without a difference raise the smallest p that could come out. Raises `ValueError` for no pairs.
    """
    values = finite(differences).ravel()
    size = float(np.abs(values).sum())
    slack = 1e-12 * size  # sums in another order differ by rounding
    far = abs(float(values.sum())) - slack
    moving = int((np.abs(values) > slack).sum())
    if len(values) <= EXACT_UP_TO:
        sums = values[:1]  # the other half of all choices are these with all signs turned
        for value in values[1:]:
            sums = np.concatenate([sums + value, sums - value])
        return SignFlips(float((np.abs(sums) >= far).mean()), smallest_p(moving), exact=True)
    rng = np.random.default_rng(seed)
    hits = sum(int((np.abs(_signs(rng, 1000, len(values)) @ values) >= far).sum()) for _ in range(FLIPS // 1000))
    return SignFlips((1 + hits) / (1 + FLIPS), max(smallest_p(moving), 1 / (1 + FLIPS)), exact=False)


@dataclass(frozen=True)
class Closeness:
    """Two one-sided tests of whether a mean difference lies within a margin."""

    p: float
    """Of lying within it: small if neither side may well be beyond."""
    beyond_p: float
    """Of lying beyond it, on either side."""
    smallest_p: float
    """What could have come out at best."""


def equivalence_test(differences: ArrayLike, margin: float, *, seed: int = 0) -> Closeness:
    """Whether the mean of paired `differences` lies within +-`margin`: Schuirmann's two one-sided tests (Journal of
    Pharmacokinetics and Biopharmaceutics 15, 1987) by sign flips about either end in place of t.

    p is the larger of those that the mean is not at -margin or below, and not at +margin or above; `beyond_p` is twice
    the smaller of those that it is outside. Raises `ValueError` for a margin that is not above 0.
    """
    if not margin > 0:
        raise ValueError(f"to be equal within a margin takes one above 0, not {margin}")
    values = finite(differences).ravel()
    inside = max(_one_sided(values + margin, seed), _one_sided(margin - values, seed))
    outside = min(_one_sided(values - margin, seed), _one_sided(-values - margin, seed))
    return Closeness(inside, min(1.0, 2 * outside), smallest_p(len(values)) / 2)


def _one_sided(values: Array, seed: int) -> float:
    """The share of all choices of signs whose sum is at least the one observed; of random ones above 20 values."""
    least = float(values.sum()) - 1e-12 * float(np.abs(values).sum())
    if len(values) <= EXACT_UP_TO:
        sums = np.zeros(1)
        for value in values:
            sums = np.concatenate([sums + value, sums - value])
        return float((sums >= least).mean())
    rng = np.random.default_rng(seed)
    hits = sum(int((_signs(rng, 1000, len(values)) @ values >= least).sum()) for _ in range(FLIPS // 1000))
    return (1 + hits) / (1 + FLIPS)


def smallest_p(pairs: int) -> float:
    """What the exact two-sided test of so many pairs gives at best: 2 of 2^n choices of signs. 5 give 0.0625."""
    return min(1.0, 2.0 ** (1 - pairs))


def pairs_needed(alpha: float, contrasts: int = 1, sides: int = 2) -> int:
    """The fewest pairs whose test can come out at `alpha` or below after Holm's adjustment over so many contrasts."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1, not be {alpha}")
    pairs = 1
    while contrasts * smallest_p(pairs) * sides / 2 > alpha:
        pairs += 1
    return pairs


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Adjusted p of each named contrast (Holm, Scandinavian Journal of Statistics 6, 1979), in the order given.

    The i-th smallest of m is multiplied by m + 1 - i, is never below the one before it, and is at most 1. To reject
    what is at most alpha keeps the chance of any false rejection at alpha, however the contrasts depend on each other.
    """
    if not all(0 <= value <= 1 for value in p.values()):
        raise ValueError(f"p must lie between 0 and 1: {dict(p)}")
    adjusted, highest = {}, 0.0
    for left, name in zip(range(len(p), 0, -1), sorted(p, key=lambda name: p[name]), strict=True):
        highest = max(highest, min(1.0, left * p[name]))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p}


def _signs(rng: np.random.Generator, choices: int, pairs: int) -> Array:
    return np.where(rng.integers(0, 2, (choices, pairs)) == 1, 1.0, -1.0)
