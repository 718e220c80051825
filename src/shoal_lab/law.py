"""A law of learning: how many updates it takes, as a power of the live groups in each.

    points = read_points(read_results(Path("lab/law")))
    law = fit([point for point in points if point.arm != "4/12 fill"])
    law.exponent, law.low, law.high                  # 0.5, and its 95 % interval
    law.predict("guppy", live=7.5)                   # updates, in the regime "guppy"

updates = scale / live ^ exponent, with one exponent for all regimes and a scale for each: least squares of logarithms
over arms, each counted once. `updates` is how many it takes to reach a held-out pass@1 that every arm of the regime
reaches; `live` is the mean number of groups with a gradient in those updates, own and others'. A critical batch size
(arXiv 1812.06162) bends the line: from there on more groups save fewer updates than the law says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from shoal.errors import UserError
from shoal_lab.measures import held_out
from shoal_lab.results import Results, RunResult
from shoal_lab.spread import read_learned

RESAMPLES: Final = 2000
REACHED: Final = 0.9
"""The level that arms are compared at, as a share of what the slowest arm gained."""
LEARNED: Final = 0.05
"""An arm that gained less held-out pass@1 than this learned nothing, as far as anybody can see."""
FEWEST_ARMS: Final = 3
"""Arms that a regime needs for a line."""


@dataclass(frozen=True)
class Point:
    """An arm of a regime, in the mean of its seeds."""

    regime: str
    arm: str
    live: float
    """Groups with a gradient in an update."""
    updates: float
    """Updates until the held-out pass@1 that every arm of the regime reaches."""
    generations: int = 8
    """G: completions in a group."""


@dataclass(frozen=True)
class Law:
    exponent: float
    low: float
    high: float
    """The 95 % interval of the exponent: the bootstrap over arms."""
    scales: dict[str, float]
    """Updates of one live group each that it takes, by regime."""

    def predict(self, regime: str, live: float) -> float:
        """Updates."""
        return float(self.scales[regime] / live**self.exponent)


def read_points(results: Results) -> list[Point]:
    """A point for each arm of each regime that learned something. The level is 90 % of the smallest gain among these
    arms, each from their common start to its best evaluation."""
    points = []
    for regime, arms in results.runs.items():
        mean = {arm: pd.concat([held_out(r.own).mean(axis=1) for r in runs.values()], axis=1).mean(axis=1).dropna()
                for arm, runs in arms.items()}  # fmt: skip
        curves = {
            arm: curve for arm, curve in mean.items() if len(curve) > 1 and curve.max() - curve.iloc[0] >= LEARNED
        }
        if not curves:
            continue
        start = float(np.mean([curve.iloc[0] for curve in curves.values()]))
        level = start + REACHED * min(float(curve.max()) - start for curve in curves.values())
        for arm, curve in curves.items():
            updates = first_reached(curve, level)
            live = [_live(run, updates) for run in arms[arm].values()]
            size = results.study.config(next(iter(arms[arm].values())).cell).policy.num_generations
            if math.isfinite(updates) and updates > 0 and min(live) > 0:
                points.append(Point(regime, arm, float(np.mean(live)), updates, size))
    return points


def first_reached(curve: pd.Series, level: float) -> float:
    """Where a curve first reaches a level, on straight lines between its points. NaN where it does not."""
    before_at, before = float(curve.index[0]), float(curve.iloc[0])
    for at, value in curve.items():
        if value >= level:
            share = (level - before) / (value - before) if value > before else 0.0
            return before_at + max(0.0, share) * (float(at) - before_at)
        before_at, before = float(at), float(value)
    return math.nan


def _live(run: RunResult, updates: float) -> float:
    """Live groups in an update of a node, over the first `updates`."""
    learned = read_learned(run.learned, run.nodes)
    rounds = max(1, math.ceil(updates)) if math.isfinite(updates) else run.rounds
    return float(learned["live"][learned["round"] <= rounds].sum()) / (rounds * len(run.nodes))


def fit(points: Sequence[Point], seed: int = 0) -> Law:
    """The law of `points`. Raises `UserError` where a regime has fewer than three arms, or all have as many live
    groups."""
    table = pd.DataFrame(points)
    if table.empty or table.groupby("regime").size().min() < FEWEST_ARMS:
        raise UserError(f"a law needs at least {FEWEST_ARMS} arms of each regime that learned something")
    exponent = _slope(table)
    if not math.isfinite(exponent):
        raise UserError("the arms have the same number of live groups in an update: they say nothing about a law")
    random, groups = np.random.default_rng(seed), [group for _, group in table.groupby("regime")]
    drawn = [
        _slope(pd.concat([group.iloc[random.integers(0, len(group), len(group))] for group in groups]))
        for _ in range(RESAMPLES)
    ]
    low, high = np.nanpercentile(drawn, [2.5, 97.5])
    means = np.log(table.set_index("regime")[["live", "updates"]]).groupby("regime").mean()
    scales = np.exp(means["updates"] + exponent * means["live"])
    return Law(exponent, float(low), float(high), {str(regime): float(scale) for regime, scale in scales.items()})


def rank_correlation(law: Law, points: Sequence[Point]) -> float:
    """Spearman's, of what the law says and what was seen. NaN for fewer than three points."""
    if len(points) < FEWEST_ARMS:
        return math.nan
    said = pd.Series([law.predict(point.regime, point.live) for point in points])
    return float(said.rank().corr(pd.Series([point.updates for point in points]).rank()))


def errors(law: Law, points: Sequence[Point]) -> list[float]:
    """How far each point lies above the law, relative to what the law says: 0.1 is 10 % more updates."""
    return [point.updates / law.predict(point.regime, point.live) - 1 for point in points]


def _slope(table: pd.DataFrame) -> float:
    """The exponent: of the logarithms, within regimes. NaN where nothing differs."""
    logs = np.log(table[["live", "updates"]])
    within = logs - logs.groupby(table["regime"]).transform("mean")
    spread = float((within["live"] ** 2).sum())
    return -float((within["live"] * within["updates"]).sum()) / spread if spread > 1e-12 else math.nan
