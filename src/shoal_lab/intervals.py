"""Interquartile means and chances of improvement over a few swarm runs, with bootstrap intervals.

    print(iqm_interval(scores_R))                     # 0.2835 [0.2713, 0.2954]
    print(iqm_difference(treated_R, control_R))       # item i of both is one seed

R: runs, one figure of each. Intervals are percentiles of 10,000 resamples of whole runs (Agarwal et al., arXiv
2108.13264, section 4); the same arguments and `seed` give the same interval. They agree with those of rliable 1.2.0,
which is not used since it brings arch, statsmodels and seaborn.

Percentile intervals are too narrow for few runs: in simulations with normal scores, 95 % intervals held the truth in
about 89 % of cases with 5 runs, and in 94 % with 10 or 20. So the exact test (`permutation`) decides a contrast, and
the interval tells the size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

RESAMPLES = 10_000


@dataclass(frozen=True)
class Interval:
    """A figure with the ends of its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def interquartile_mean(scores: ArrayLike) -> float:
    """The mean without the lowest and the highest quarter (rounded down): `scipy.stats.trim_mean(scores, 0.25)`.

    Of up to 3 values it is their mean. Raises `ValueError` for no values, or values that are not finite.
    """
    return float(_iqm(finite(scores)[None])[0])


def iqm_interval(scores: ArrayLike, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The interquartile mean with its interval."""
    scores_R = finite(scores)
    drawn_BR = scores_R[_draws(len(scores_R), resamples, seed)]
    return Interval(interquartile_mean(scores_R), *_percentiles(_iqm(drawn_BR), level))


def iqm_difference(
    treated: ArrayLike, control: ArrayLike, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The interquartile mean of `treated` less that of `control`; a resample draws the same seeds for both."""
    above_R, below_R = _paired(treated, control)
    draws_BR = _draws(len(above_R), resamples, seed)
    drawn_B = _iqm(above_R[draws_BR]) - _iqm(below_R[draws_BR])
    return Interval(interquartile_mean(above_R) - interquartile_mean(below_R), *_percentiles(drawn_B, level))


def relative_difference(
    treated: ArrayLike, control: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval | None:
    """`iqm_difference` as a share of the control's interquartile mean, with its 95 % interval. None where the control
    is 0, or so near it that the interval has no end."""
    above_R, below_R = _paired(treated, control)
    base = interquartile_mean(below_R)
    if base <= 0:
        return None
    draws_BR = _draws(len(above_R), resamples, seed)
    above_B, below_B = _iqm(above_R[draws_BR]), _iqm(below_R[draws_BR])
    shares_B = np.where(below_B > 0, above_B / np.where(below_B > 0, below_B, 1) - 1, np.inf)
    low, high = np.quantile(shares_B, [0.025, 0.975], method="nearest")  # interpolation would take inf from inf
    if not np.isfinite([low, high]).all():
        return None
    return Interval(interquartile_mean(above_R) / base - 1, float(low), float(high))


def probability_of_improvement(
    treated: ArrayLike, control: ArrayLike, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The chance that a run of `treated` is above a run of `control`; ties count half, so 0.5 says neither is better.

    All pairs of runs are compared (Mann and Whitney's U over the number of pairs); a resample draws the same seeds for
    both.
    """
    above_R, below_R = _paired(treated, control)
    wins_RR = (above_R[:, None] > below_R) + 0.5 * (above_R[:, None] == below_R)
    runs = len(above_R)
    times_BR = np.random.default_rng(seed).multinomial(runs, np.full(runs, 1 / runs), size=resamples)
    shares_BR = times_BR.astype(np.float64) / runs
    return Interval(float(wins_RR.mean()), *_percentiles(((shares_BR @ wins_RR) * shares_BR).sum(axis=1), level))


def finite(scores: ArrayLike) -> Array:
    """One-dimensional float64. Raises `ValueError` for no values, or values that are not finite."""
    values = np.asarray(scores, dtype=np.float64).ravel()
    if not values.size or not np.isfinite(values).all():
        raise ValueError("scores are needed, all of them finite")
    return values


def _paired(treated: ArrayLike, control: ArrayLike) -> tuple[Array, Array]:
    above_R, below_R = finite(treated), finite(control)
    if len(above_R) != len(below_R):
        raise ValueError("paired arms need the same runs")
    return above_R, below_R


def _draws(runs: int, resamples: int, seed: int) -> NDArray[np.int64]:
    """The runs that each resample draws, with replacement."""
    return np.random.default_rng(seed).integers(0, runs, (resamples, runs))


def _iqm(scores_BR: Array) -> Array:
    n = scores_BR.shape[1]
    middle_B: Array = np.sort(scores_BR, axis=1)[:, n // 4 : n - n // 4].mean(axis=1)
    return middle_B


def _percentiles(drawn_B: Array, level: float) -> tuple[float, float]:
    if not 0 < level < 1:
        raise ValueError(f"the level of an interval must lie between 0 and 1, not be {level}")
    low, high = np.quantile(drawn_B, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
