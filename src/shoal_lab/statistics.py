"""Statistics over a few swarm runs: interquartile means, bootstrap intervals, exact paired tests, Holm's adjustment.

    iqm_interval(scores_R)                            # Interval(value=0.2835, low=0.2713, high=0.2954)
    iqm_difference(treated_R, control_R)              # item i of both is one seed
    sign_flip_test(treated_R - control_R).p
    holm(pd.Series([0.01, 0.04]))                     # 0.02, 0.04

R: runs, one figure of each. The swarm run is the unit: nodes, tasks and rounds of one run depend on each other. Runs
are paired by seed: a seed means the same weights, questions and evaluation in each arm.

Intervals are percentiles of 10,000 resamples of whole runs (Agarwal et al., arXiv 2108.13264, section 4). They are too
narrow for few runs (95 % intervals hold 89 % with 5 runs), so the exact test decides, and the interval tells the size.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

LEVEL = 0.95
"""Of all intervals."""
RESAMPLES = 10_000
ALPHA = 0.05
"""Significance level, after Holm's adjustment."""
MOST_PAIRS = 20
"""Of a test, which counts all 2^n sign flips."""


@dataclass(frozen=True)
class Interval:
    """A figure with the ends of its interval."""

    value: float
    low: float
    high: float


def interquartile_mean(scores: ArrayLike) -> float:
    """The mean without the lowest and the highest quarter (rounded down): `scipy.stats.trim_mean(scores, 0.25)`.

    Of up to 3 values it is their mean. Raises `ValueError` for no values, or values that are not finite.
    """
    return float(_iqm(finite(scores)[None])[0])


def iqm_interval(scores: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The interquartile mean with its interval."""
    scores_R, _, draws_BR = _paired(scores, scores, resamples, seed)
    return Interval(interquartile_mean(scores_R), *_percentiles(_iqm(scores_R[draws_BR])))


def iqm_difference(treated: ArrayLike, control: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The interquartile mean of `treated` less that of `control`; a resample draws the same seeds for both."""
    above_R, below_R, draws_BR = _paired(treated, control, resamples, seed)
    drawn_B = _iqm(above_R[draws_BR]) - _iqm(below_R[draws_BR])
    return Interval(interquartile_mean(above_R) - interquartile_mean(below_R), *_percentiles(drawn_B))


def relative_difference(treated: ArrayLike, control: ArrayLike, *, seed: int = 0) -> Interval | None:
    """`iqm_difference` as a share of the control's interquartile mean, with its 95 % interval. None where the control
    is 0, or so near it that the interval has no end."""
    above_R, below_R, draws_BR = _paired(treated, control, RESAMPLES, seed)
    if (base := interquartile_mean(below_R)) <= 0:
        return None
    above_B, below_B = _iqm(above_R[draws_BR]), _iqm(below_R[draws_BR])
    shares_B = np.where(below_B > 0, above_B / np.where(below_B > 0, below_B, 1) - 1, np.inf)
    low, high = np.quantile(shares_B, [0.025, 0.975], method="nearest")  # interpolation would take inf from inf
    if not np.isfinite([low, high]).all():
        return None
    return Interval(interquartile_mean(above_R) / base - 1, float(low), float(high))


@dataclass(frozen=True)
class PairedTest:
    """A paired permutation test."""

    p: float
    smallest_p: float
    """The best that could come out of these pairs."""
    beyond_p: float = math.nan
    """Of a test for equality: small if the mean is beyond the margin, on either side."""


def sign_flip_test(differences: ArrayLike) -> PairedTest:
    """The two-sided paired permutation test of the mean difference (Fisher, The Design of Experiments, 1935, 21).

    If the arms do the same, each difference could as well have the other sign. p is the share of all 2^n choices of
    signs whose sum is at least as far from 0 as the observed one. Pairs without a difference raise `smallest_p`. Raises
    `ValueError` for no pairs, or more than 20.
    """
    values = finite(differences)
    moved = int((np.abs(values) > 1e-12 * np.abs(values).sum()).sum())
    return PairedTest(_share(values, np.abs), smallest_p(moved))


def equivalence_test(differences: ArrayLike, margin: float) -> PairedTest:
    """Whether the mean of paired `differences` lies within +-`margin`: Schuirmann's two one-sided tests (Journal of
    Pharmacokinetics and Biopharmaceutics 15, 1987), by sign flips in place of t.

    `p` is the larger of the p of both sides; `beyond_p` is twice the smaller p of being outside. Raises `ValueError`
    for a margin that is not above 0, and as `sign_flip_test`.
    """
    if not margin > 0:
        raise ValueError(f"the margin must be above 0, not {margin}")
    values = finite(differences)
    inside = max(_share(side, np.positive) for side in (values + margin, margin - values))
    outside = min(_share(side, np.positive) for side in (values - margin, -values - margin))
    return PairedTest(inside, smallest_p(len(values)) / 2, min(1.0, 2 * outside))


def smallest_p(pairs: int) -> float:
    """The best that the exact two-sided test of so many pairs can give: 2 of 2^n choices. 5 pairs give 0.0625."""
    return min(1.0, 2.0 ** (1 - pairs))


def pairs_needed(contrasts: int = 1, sides: int = 2) -> int:
    """The fewest pairs whose test can reach `ALPHA` after Holm's adjustment over so many contrasts."""
    pairs = 1
    while contrasts * smallest_p(pairs) * sides / 2 > ALPHA:
        pairs += 1
    return pairs


def holm(p: pd.Series) -> pd.Series:
    """Adjusted p of each contrast (Holm, Scandinavian Journal of Statistics 6, 1979), in the order given.

    The i-th smallest of m is multiplied by m + 1 - i, is never below the one before it, and is at most 1. Rejecting
    those at most alpha keeps the chance of any false rejection at alpha, however the contrasts depend on each other.
    """
    rising = p.sort_values()
    return (rising * np.arange(len(p), 0, -1)).cummax().clip(upper=1.0).reindex(p.index)


def finite(scores: ArrayLike) -> Array:
    """One-dimensional float64. Raises `ValueError` for no values, or values that are not finite."""
    values = np.asarray(scores, dtype=np.float64).ravel()
    if not values.size or not np.isfinite(values).all():
        raise ValueError("scores are needed, all of them finite")
    return values


def _paired(
    treated: ArrayLike, control: ArrayLike, resamples: int, seed: int
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Both arms, and the runs that each resample draws, with replacement."""
    above_R, below_R = finite(treated), finite(control)
    if len(above_R) != len(below_R):
        raise ValueError("paired arms need the same runs")
    runs = len(above_R)
    return above_R, below_R, np.random.default_rng(seed).integers(0, runs, (resamples, runs))


def _iqm(scores_BR: Array) -> Array:
    n = scores_BR.shape[1]
    middle_B: Array = np.sort(scores_BR, axis=1)[:, n // 4 : n - n // 4].mean(axis=1)
    return middle_B


def _percentiles(drawn_B: Array) -> tuple[float, float]:
    low, high = np.quantile(drawn_B, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _share(values: Array, size: Callable[[Array], Array]) -> float:
    """The share of choices of signs whose sum has at least the `size` of the observed one."""
    if len(values) > MOST_PAIRS:
        raise ValueError(f"{len(values)} pairs are more than {MOST_PAIRS}")
    least = size(values.sum()) - 1e-12 * np.abs(values).sum()  # sums in another order differ by rounding
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return float((size(sums) >= least).mean())
