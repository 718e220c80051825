"""Interquartile means and chances of improvement over a few swarm runs, with bootstrap intervals.

    print(iqm_interval([scores_R]))                   # 0.2835 [0.2713, 0.2954]
    print(iqm_difference([treated_R], [control_R]))   # row i of both is one seed

Scores come as *strata*, sets of runs made apart (a regime, a model): each an array with a run in a row, `scores_R` with
one figure of each run or `scores_RT` with several. Runs are drawn with replacement within each stratum, a whole row at
a time. Agarwal et al. (arXiv 2108.13264, section 4) draw each task's runs apart, since theirs are runs of one task
each: that is one `scores_R` for each task. Everything is a function of its arguments and their `seed`.

Percentile intervals are too narrow for few runs: in simulations with normal scores, those of 95 % held the truth in
about 89 % of the cases with 5 runs, and 94 % with 10 or 20. So it is the exact test (`permutation.py`) that decides in
a contrast, and the interval that tells the size. Estimates and intervals agree with those of rliable 1.2.0, which is
not used: it brings arch, statsmodels and seaborn, and arch 7 does not import beside pandas 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Strata = Sequence[ArrayLike]

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
    """The mean of what is left after the lowest and the highest quarter (rounded down) are cut off.

    Agarwal et al., arXiv 2108.13264, section 4.3; `scipy.stats.trim_mean(scores, 0.25, axis=None)`. Of up to 3 values
    it is their mean. Raises `ValueError` for no values or such as are not finite.
    """
    return float(_iqm(finite(scores).reshape(1, -1))[0])


def iqm_interval(strata: Strata, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The interquartile mean over all strata, with the stratified percentile bootstrap interval (arXiv 2108.13264)."""
    tables = _tables(strata)
    drawn = _drawn_iqm(tables, _draws(tables, resamples, seed))
    return Interval(interquartile_mean(_flat(tables)), *_percentiles(drawn, level))


def iqm_difference(
    treated: Strata, control: Strata, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The interquartile mean of `treated` less that of `control`. Row i of both is one seed, and is drawn for both."""
    above, below = _tables(treated), _tables(control)
    _same_shapes(above, below)
    draws = _draws(above, resamples, seed)
    value = interquartile_mean(_flat(above)) - interquartile_mean(_flat(below))
    return Interval(value, *_percentiles(_drawn_iqm(above, draws) - _drawn_iqm(below, draws), level))


def probability_of_improvement(
    treated: Strata,
    control: Strata,
    *,
    paired: bool = True,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """The chance that a run of `treated` is above a run of `control`, ties counting half: 0.5 says neither is better.

    All pairs of runs are compared (Mann and Whitney's U over the number of pairs), column by column, and strata weigh
    alike (arXiv 2108.13264, section 4.3). With `paired`, a seed is drawn for both arms; otherwise each arm's runs are
    drawn apart, as in that paper, and there may be different numbers of them.
    """
    above, below = _tables(treated), _tables(control)
    if paired:
        _same_shapes(above, below)
    elif [table.shape[1] for table in above] != [table.shape[1] for table in below]:
        raise ValueError("both arms need the same strata, with the same columns")
    rng = np.random.default_rng(seed)
    values, drawn = [], np.zeros(resamples)
    for one, other in zip(above, below, strict=True):
        wins_RR = ((one[:, None] > other[None]) + 0.5 * (one[:, None] == other[None])).mean(axis=2)
        share_BR = _shares(rng, len(one), resamples)
        other_BR = share_BR if paired else _shares(rng, len(other), resamples)
        values.append(float(wins_RR.mean()))
        drawn += ((share_BR @ wins_RR) * other_BR).sum(axis=1) / len(above)
    return Interval(float(np.mean(values)), *_percentiles(drawn, level))


def finite(scores: ArrayLike) -> Array:
    """As float64. Raises `ValueError` for no values, or such as are not finite."""
    values = np.asarray(scores, dtype=np.float64)
    if not values.size or not np.isfinite(values).all():
        raise ValueError("scores are needed, all of them finite")
    return values


def _tables(strata: Strata) -> list[Array]:
    """Each stratum as `scores_RT`."""
    tables = [finite(stratum) for stratum in strata]
    if not tables or any(table.ndim not in (1, 2) for table in tables):
        raise ValueError("strata are a list of arrays, each with a run in a row")
    return [table.reshape(len(table), -1) for table in tables]


def _same_shapes(above: list[Array], below: list[Array]) -> None:
    if [table.shape for table in above] != [table.shape for table in below]:
        raise ValueError("paired arms need the same runs in the same strata")


def _flat(tables: list[Array]) -> Array:
    return np.concatenate([table.ravel() for table in tables])


def _draws(tables: list[Array], resamples: int, seed: int) -> list[NDArray[np.int64]]:
    """For each stratum, the rows `rows_BR` that each resample draws."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, len(table), (resamples, len(table))) for table in tables]


def _drawn_iqm(tables: list[Array], draws: list[NDArray[np.int64]]) -> Array:
    drawn = [table[rows_BR].reshape(len(rows_BR), -1) for table, rows_BR in zip(tables, draws, strict=True)]
    return _iqm(np.concatenate(drawn, axis=1))


def _iqm(scores_BN: Array) -> Array:
    n = scores_BN.shape[1]
    middle: Array = np.sort(scores_BN, axis=1)[:, n // 4 : n - n // 4].mean(axis=1)
    return middle


def _shares(rng: np.random.Generator, runs: int, resamples: int) -> Array:
    """How large a part of each resample each run is, when runs are drawn with replacement: (resamples, runs)."""
    times_BR = rng.multinomial(runs, np.full(runs, 1 / runs), size=resamples)
    return times_BR.astype(np.float64) / runs


def _percentiles(drawn: Array, level: float) -> tuple[float, float]:
    if not 0 < level < 1:
        raise ValueError(f"the level of an interval must lie between 0 and 1, not be {level}")
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
