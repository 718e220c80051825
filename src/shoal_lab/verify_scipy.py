"""The statistics of a report once more, by scipy and numpy alone. Nothing here uses the laboratory's own.

    iqm([0.1, 0.2, 0.3, 0.9])                       # scipy.stats.trim_mean(..., 0.25)
    flip_p(np.array([0.1, 0.2, 0.3]))               # 0.25, scipy.stats.permutation_test by sign flips
    ends_agree(0.1, 0.4, resampled([scores], iqm))  # whether an interval is that of scipy.stats.bootstrap

Intervals rest on 10,000 random resamples, in a report and here. So an end is compared by where it lies among those made
here: the share below it is to be 2.5 % (97.5 %) within `SIGMAS` standard errors of both samples together, 1.1
percentage points (`TOLERANCE`). A right report fails that about once in a million ends. p of more than `EXACT_UP_TO`
pairs may differ by as many standard errors. All else agrees to rounding (`CLOSE`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CLOSE: Final = 1e-9
RESAMPLES: Final = 10_000
SIGMAS: Final = 5.0
TOLERANCE: Final = SIGMAS * math.sqrt(0.025 * 0.975 * 2 / RESAMPLES)
EXACT_UP_TO: Final = 14
"""Pairs whose sign flips scipy counts one by one in a second."""
FLIPS: Final = 50_000

Array = NDArray[np.float64]


def iqm(values: Any, axis: int = -1) -> Any:
    """The interquartile mean."""
    return stats.trim_mean(values, 0.25, axis=axis)


def difference(treated: Array, control: Array, axis: int = -1) -> Any:
    """Of interquartile means."""
    return iqm(treated, axis) - iqm(control, axis)


def share(treated: Array, control: Array, axis: int = -1) -> Any:
    """`difference` as a share of the control's; infinite where that is 0."""
    above, below = iqm(treated, axis), iqm(control, axis)
    return np.where(below > 0, above / np.where(below > 0, below, 1.0) - 1, np.inf)


def wins(treated: Array, control: Array, axis: int = -1) -> Any:
    """The chance that a run of `treated` is above one of `control`; ties count half."""
    moved = treated[..., :, None] - control[..., None, :]
    return ((moved > 0) + 0.5 * (moved == 0)).mean(axis=(-2, -1))


def resampled(samples: Sequence[Array], statistic: Callable[..., Any]) -> Array:
    """The statistic of `RESAMPLES` resamples of whole runs, the same runs of each of the `samples`."""
    runs = len(samples[0])
    if runs < 2 or all((sample == sample[0]).all() for sample in samples):
        return np.array([statistic(*samples)], dtype=float)  # scipy resamples no single run
    made = stats.bootstrap(
        tuple(samples), statistic, n_resamples=RESAMPLES, batch=max(1, 4_000_000 // runs**2), paired=len(samples) > 1,
        vectorized=True, method="percentile", rng=np.random.default_rng(0),
    )  # fmt: skip
    return np.asarray(made.bootstrap_distribution, dtype=float)


def ends_agree(low: float, high: float, drawn: Array) -> bool:
    """Whether the ends of a 95 % interval lie where those of the statistic `drawn` do."""
    slack = CLOSE * max(abs(low), abs(high))
    return all(
        (drawn < end - slack).mean() <= place + TOLERANCE and (drawn <= end + slack).mean() >= place - TOLERANCE
        for end, place in ((low, 0.025), (high, 0.975))
    )


def flip_p(differences: Array, alternative: str = "two-sided") -> float:
    """p of the paired permutation test of the mean difference."""
    pairs, size = len(differences), float(np.abs(differences).sum()) or 1.0
    if pairs == 1:  # scipy asks for two
        return 1.0 if alternative == "two-sided" or differences[0] <= 0 else 0.5

    def mean(one: Array, other: Array, axis: int = -1) -> Any:
        return np.round((one - other).sum(axis=axis) / size, 12)  # ties stay ties in any order of the sum

    made = stats.permutation_test(
        (differences, np.zeros(pairs)), mean, permutation_type="samples", vectorized=True, alternative=alternative,
        n_resamples=2**pairs if pairs <= EXACT_UP_TO else FLIPS, batch=4096, rng=np.random.default_rng(0),
    )  # fmt: skip
    return float(made.pvalue)


def p_agrees(reported: float, found: float, pairs: int) -> bool:
    """Whether two p are the same, but for noise where signs were drawn at random, in a report or here."""
    noise = SIGMAS * math.sqrt(2 * found * (1 - found) / FLIPS) + 10 / FLIPS if pairs > EXACT_UP_TO else 0.0
    return close(reported, found) or abs(reported - found) <= noise


def smallest_p(differences: Array, equality: bool) -> float:
    """The best that so many pairs could give."""
    pairs = len(differences)
    moved = int((np.abs(differences) > 1e-12 * np.abs(differences).sum()).sum())
    best = 2.0**-pairs if equality else min(1.0, 2.0 ** (1 - moved))
    return max(best, 1 / 100_001 if pairs > 20 else 0.0)


def holm(p: Sequence[float]) -> list[float]:
    """Holm (1979): the i-th smallest of m times m + 1 - i, never below the one before it, at most 1."""
    order = np.argsort(p, kind="stable")
    adjusted = np.ones(len(p))
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, np.array(p)[order] * np.arange(len(p), 0, -1)))
    return list(adjusted)


def close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-12)
