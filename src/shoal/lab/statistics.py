"""What may be concluded from a few swarm runs: intervals, exact tests, and sentences that claim no more than those.

    scores = {"4/4": {1: 0.31, 2: 0.28, ...}, "8/0": {1: 0.25, 2: 0.27, ...}}      # arm -> seed -> a figure of that run
    for contrast in compare(scores, {"sharing": ("4/4", "8/0"), "too much": ("2/6", "4/4")}):
        print(contrast.sentence)

The swarm run is the unit: nodes, tasks and rounds of one run depend on each other and are never drawn apart. Seeds are
paired across arms: a seed means the same weights, questions and evaluation in each. Everything here is a function of
its arguments and their `seed`.

Scores for intervals come as *strata*, sets of runs made apart (a regime, a model): each an array with a run in a row,
`scores_R` with one figure of each run or `scores_RT` with several. Runs are drawn with replacement within each stratum,
a whole row at a time. Agarwal et al. (arXiv 2108.13264, section 4) draw each task's runs apart, since theirs are runs
of one task each: that is one `scores_R` for each task.

Percentile intervals are too narrow for few runs: in simulations with normal scores, those of 95 % held the truth in
about 89 % of the cases with 5 runs, and 94 % with 10 or 20. So it is the exact test that decides in a `Contrast`, and
the interval that tells the size. Estimates and intervals agree with those of rliable 1.2.0, which is not used: it
brings arch, statsmodels and seaborn, and arch 7 does not import beside pandas 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Strata = Sequence[ArrayLike]

RESAMPLES = 10_000
EXACT_UP_TO = 20
"""Pairs whose sign flips are all counted: 2^20 of them."""
FLIPS = 100_000
"""Random sign flips of more pairs than that."""
FEW = 10
"""Fewer seeds than this give an interval that is too narrow to be quoted without saying so."""


@dataclass(frozen=True)
class Interval:
    """A figure with the ends of its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True)
class SignFlips:
    """A paired permutation test. `smallest_p` is what these pairs would give if all differed in one direction."""

    p: float
    smallest_p: float
    exact: bool


def interquartile_mean(scores: ArrayLike) -> float:
    """The mean of what is left after the lowest and the highest quarter (rounded down) are cut off.

    Agarwal et al., arXiv 2108.13264, section 4.3; `scipy.stats.trim_mean(scores, 0.25, axis=None)`. Of up to 3 values
    it is their mean. Raises `ValueError` for no values or such as are not finite.
    """
    return float(_iqm(_finite(scores).reshape(1, -1))[0])


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


def sign_flip_test(differences: ArrayLike, *, seed: int = 0) -> SignFlips:
    """The two-sided paired permutation test of the mean difference (Fisher, The Design of Experiments, 1935, 21).

    If the arms do the same, either run of a pair could have come from either arm, so each difference could as well
    have the other sign. p is the share of all 2^n choices of signs whose sum is at least as far from 0 as the one
    observed. Above 20 pairs, (1 + hits) / (1 + 100,000) of random choices (Phipson and Smyth, SAGMB 9, 2010).
    Pairs without a difference raise the smallest p that could come out. Raises `ValueError` for no pairs.
    """
    values = _finite(differences).ravel()
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
    values = _finite(differences).ravel()
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


@dataclass(frozen=True)
class Contrast:
    """One comparison, named before the runs, of one figure of each run of two arms."""

    name: str
    treated: str
    control: str
    seeds: int
    """Pairs of runs."""
    unpaired: tuple[int, ...]
    """Seeds that only one of the arms has: they are left out, and the sentence says so."""
    difference: Interval
    """Of interquartile means, `treated` less `control`, with the paired bootstrap interval."""
    mean_difference: float
    """What the test is about."""
    improvement: Interval
    """Probability that a run of `treated` is above one of `control`."""
    p: float
    adjusted_p: float
    """By Holm over all contrasts of its kind: those that ask for a difference, and those that ask for equality."""
    smallest_adjusted_p: float
    """What could have come out at best, with these numbers of pairs in all contrasts."""
    contrasts: int
    """Of its kind."""
    alpha: float
    level: float
    margin: float | None = None
    """Within which the arms are asked to be equal; None: they are asked to differ."""
    beyond_p: float | None = None
    """Then: of a difference larger than that."""

    @property
    def conclusive(self) -> bool:
        """Whether the arms may be said to differ, or to be equal within the margin, whichever was asked."""
        return self.adjusted_p <= self.alpha

    @property
    def beyond(self) -> bool:
        """Whether they may be said to differ by more than the margin that they were asked to be equal within."""
        return self.beyond_p is not None and not self.conclusive and self.beyond_p <= self.alpha

    @property
    def side(self) -> str:
        return "above" if self.mean_difference > 0 else "below"

    @property
    def sentence(self) -> str:
        """What was seen, what may be concluded from it, and what may not."""
        d = self.difference
        seeds = f"{self.seeds} seed" + "s" * (self.seeds != 1)
        seen = (
            f"{self.name}: {self.treated} less {self.control} is {d.value:+.4g} in interquartile mean "
            f"({self.level:.0%} interval {d.low:+.4g} to {d.high:+.4g}; {seeds})."
        )
        notes = [seen, self._conclusion(seeds)]
        if self.seeds < FEW:
            notes.append(f"With fewer than {FEW} seeds such an interval is narrower than it says.")
        if self.unpaired:
            notes.append(f"Left out, as only one arm has them: seeds {', '.join(map(str, self.unpaired))}.")
        return " ".join(notes)

    def _conclusion(self, seeds: str) -> str:
        over = f" after Holm's adjustment over {self.contrasts} contrasts" if self.contrasts > 1 else ""
        p = f"p = {self.adjusted_p:.3g}{over}"
        if self.smallest_adjusted_p > self.alpha:
            return (
                f"Nothing may be concluded: with {seeds} the smallest p that can come out{over} is "
                f"{self.smallest_adjusted_p:.3g}, so nothing can reach {self.alpha:g}; "
                f"{pairs_needed(self.alpha, self.contrasts, 2 if self.margin is None else 1)} seeds could."
            )
        if self.margin is not None:
            return self._closeness(p)
        if self.conclusive:
            side = self.side
            claim = f"The mean of {self.treated} may be said to be {side} that of {self.control} ({p}) in this setting"
            other = self.difference.low <= 0 <= self.difference.high or (self.difference.value > 0) != (side == "above")
            return claim + (
                ", but the interquartile mean does not bear it out: a few seeds may carry it." if other else "."
            )
        found = "No difference may be concluded"
        if self.p <= self.alpha:
            found += f", though p = {self.p:.3g} before the adjustment"
        elif not self.difference.low <= 0 <= self.difference.high:
            found += ", though the interval leaves out 0: the test was to decide"
        return f"{found} ({p}). Nor that there is none: all in the interval remains possible."

    def _closeness(self, p: str) -> str:
        span = f"within ±{self.margin:.3g}"
        if self.conclusive:
            return f"The means may be said to be equal {span} (two one-sided tests, {p}) in this setting."
        if self.beyond:
            return (
                f"The mean of {self.treated} may be said to be {self.side} that of {self.control} by more than "
                f"{self.margin:.3g} (p = {self.beyond_p:.3g}) in this setting."
            )
        found = f"Neither that the means are equal {span} ({p}) nor that they differ by more may be concluded"
        if not self.difference.low <= 0 <= self.difference.high:
            found += f"; the interval has {self.treated} {self.side} {self.control} by some"
        return found + "."


def compare(
    scores: Mapping[str, Mapping[int, float]],
    contrasts: Mapping[str, tuple[str, str]],
    margins: Mapping[str, float] | None = None,
    *,
    alpha: float = 0.05,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Contrast]:
    """All `contrasts` (name -> treated arm, control arm) of a figure, given for each arm by seed. Those with one of the
    `margins` ask whether the arms are equal within it, the others whether they differ; Holm's adjustment is over those
    of a kind.

    Raises `ValueError` for an arm without scores, arms that share no seed, or a figure that is not finite: what
    could not be measured in one run (a threshold never reached) needs a figure that says so, not a run left out.
    """
    drawn = {}
    for name, (treated, control) in contrasts.items():
        for arm in (treated, control):
            if arm not in scores:
                raise ValueError(f"contrast {name}: no scores of arm {arm}, only of {', '.join(scores) or 'none'}")
        seeds = sorted(scores[treated].keys() & scores[control].keys())
        if not seeds:
            raise ValueError(f"contrast {name}: {treated} and {control} share no seed")
        one, other = ([_finite([scores[arm][s] for s in seeds])] for arm in (treated, control))
        drawn[name] = (seeds, one, other)
    closeness = {
        name: equivalence_test(drawn[name][1][0] - drawn[name][2][0], margin, seed=seed)
        for name, margin in (margins or {}).items()
    }
    flips = {
        name: sign_flip_test(one[0] - other[0], seed=seed)
        for name, (_, one, other) in drawn.items()
        if name not in closeness
    }
    tests: dict[str, SignFlips | Closeness] = {**flips, **closeness}
    kinds = [list(flips), list(closeness)]
    adjusted = {name: p for kind in kinds for name, p in holm({name: tests[name].p for name in kind}).items()}
    smallest = {name: p for kind in kinds for name, p in holm({name: tests[name].smallest_p for name in kind}).items()}
    return [
        Contrast(
            name=name,
            treated=contrasts[name][0],
            control=contrasts[name][1],
            seeds=len(seeds),
            unpaired=tuple(sorted(scores[contrasts[name][0]].keys() ^ scores[contrasts[name][1]].keys())),
            difference=iqm_difference(one, other, level=level, resamples=resamples, seed=seed),
            mean_difference=float((one[0] - other[0]).mean()),
            improvement=probability_of_improvement(one, other, level=level, resamples=resamples, seed=seed),
            p=tests[name].p,
            adjusted_p=adjusted[name],
            smallest_adjusted_p=smallest[name],
            contrasts=len(closeness) if name in closeness else len(flips),
            alpha=alpha,
            level=level,
            margin=(margins or {}).get(name),
            beyond_p=closeness[name].beyond_p if name in closeness else None,
        )
        for name, (seeds, one, other) in drawn.items()
    ]


def _finite(scores: ArrayLike) -> Array:
    values = np.asarray(scores, dtype=np.float64)
    if not values.size or not np.isfinite(values).all():
        raise ValueError("scores are needed, all of them finite")
    return values


def _tables(strata: Strata) -> list[Array]:
    """Each stratum as `scores_RT`."""
    tables = [_finite(stratum) for stratum in strata]
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


def _signs(rng: np.random.Generator, choices: int, pairs: int) -> Array:
    return np.where(rng.integers(0, 2, (choices, pairs)) == 1, 1.0, -1.0)


def _percentiles(drawn: Array, level: float) -> tuple[float, float]:
    if not 0 < level < 1:
        raise ValueError(f"the level of an interval must lie between 0 and 1, not be {level}")
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
