"""Exact tests of paired runs: that arms differ, that they are equal within a margin; Holm's adjustment over several.

    sign_flip_test(treated_R - control_R).p
    holm({"sharing": 0.01, "control": 0.04})          # {"sharing": 0.02, "control": 0.04}

The swarm run is the unit: nodes, tasks and rounds of one run depend on each other. Runs are paired by seed: a seed
means the same weights, questions and evaluation in each arm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal_lab.intervals import Array, finite

EXACT_UP_TO = 20
"""Pairs whose 2^n sign flips are all counted."""
FLIPS = 100_000
"""Random sign flips for more pairs than that."""


@dataclass(frozen=True)
class SignFlips:
    """A paired permutation test. `smallest_p` is what these pairs give if all differ in one direction."""

    p: float
    smallest_p: float
    exact: bool


def sign_flip_test(differences: ArrayLike, *, seed: int = 0) -> SignFlips:
    """The two-sided paired permutation test of the mean difference (Fisher, The Design of Experiments, 1935, 21).

    If the arms do the same, each difference could as well have the other sign. p is the share of all 2^n choices of
    signs whose sum is at least as far from 0 as the observed one. Above 20 pairs it is (1 + hits) / (1 + 100,000) of
    random choices (Phipson and Smyth, SAGMB 9, 2010). Pairs without a difference raise `smallest_p`. Raises
    `ValueError` for no pairs.
    """
    values = finite(differences)
    slack = 1e-12 * float(np.abs(values).sum())  # sums in another order differ by rounding
    far = abs(float(values.sum())) - slack
    least = smallest_p(int((np.abs(values) > slack).sum()))
    if len(values) > EXACT_UP_TO:
        p = _random_share(values, lambda sums: np.abs(sums) >= far, seed)
        return SignFlips(p, max(least, 1 / (1 + FLIPS)), exact=False)
    sums = _all_sums(values[1:], values[:1])  # half of all choices: the others are these with all signs turned
    return SignFlips(float((np.abs(sums) >= far).mean()), least, exact=True)


@dataclass(frozen=True)
class Closeness:
    """Two one-sided tests of whether a mean difference lies within a margin."""

    p: float
    """Small if the mean is within the margin."""
    beyond_p: float
    """Small if the mean is beyond the margin, on either side."""
    smallest_p: float
    """The best that could come out."""


def equivalence_test(differences: ArrayLike, margin: float, *, seed: int = 0) -> Closeness:
    """Whether the mean of paired `differences` lies within +-`margin`: Schuirmann's two one-sided tests (Journal of
    Pharmacokinetics and Biopharmaceutics 15, 1987), by sign flips in place of t.

    `p` is the larger of the p of both sides; `beyond_p` is twice the smaller p of being outside. Raises `ValueError`
    for a margin that is not above 0.
    """
    if not margin > 0:
        raise ValueError(f"the margin must be above 0, not {margin}")
    values = finite(differences)
    inside = max(_one_sided(values + margin, seed), _one_sided(margin - values, seed))
    outside = min(_one_sided(values - margin, seed), _one_sided(-values - margin, seed))
    least = smallest_p(len(values)) / 2
    if len(values) > EXACT_UP_TO:
        least = max(least, 1 / (1 + FLIPS))
    return Closeness(inside, min(1.0, 2 * outside), least)


def smallest_p(pairs: int) -> float:
    """The best that the exact two-sided test of so many pairs can give: 2 of 2^n choices. 5 pairs give 0.0625."""
    return min(1.0, 2.0 ** (1 - pairs))


def pairs_needed(alpha: float, contrasts: int = 1, sides: int = 2) -> int:
    """The fewest pairs whose test can reach `alpha` after Holm's adjustment over so many contrasts."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1, not be {alpha}")
    pairs = 1
    while contrasts * smallest_p(pairs) * sides / 2 > alpha:
        pairs += 1
    return pairs


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Adjusted p of each named contrast (Holm, Scandinavian Journal of Statistics 6, 1979), in the order given.

    The i-th smallest of m is multiplied by m + 1 - i, is never below the one before it, and is at most 1. Rejecting
    those at most alpha keeps the chance of any false rejection at alpha, however the contrasts depend on each other.
    """
    if not all(0 <= value <= 1 for value in p.values()):
        raise ValueError(f"p must lie between 0 and 1: {dict(p)}")
    adjusted, highest = {}, 0.0
    for left, name in zip(range(len(p), 0, -1), sorted(p, key=lambda name: p[name]), strict=True):
        highest = max(highest, min(1.0, left * p[name]))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p}


def _one_sided(values: Array, seed: int) -> float:
    """The share of choices of signs whose sum is at least the observed one."""
    least = float(values.sum()) - 1e-12 * float(np.abs(values).sum())
    if len(values) <= EXACT_UP_TO:
        return float((_all_sums(values, np.zeros(1)) >= least).mean())
    return _random_share(values, lambda sums: sums >= least, seed)


def _all_sums(values: Array, sums: Array) -> Array:
    """`sums` plus every choice of signs of `values`."""
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def _random_share(values: Array, hit: Callable[[Array], NDArray[np.bool_]], seed: int) -> float:
    rng = np.random.default_rng(seed)
    hits = 0
    for _ in range(FLIPS // 1000):
        signs = np.where(rng.integers(0, 2, (1000, len(values))) == 1, 1.0, -1.0)
        hits += int(hit(signs @ values).sum())
    return (1 + hits) / (1 + FLIPS)
