"""What was expected of a study, beside what came out.

    for verdict in verdicts(results):
        print(verdict.name, verdict.regime, verdict.expect, verdict.outcome, verdict.sentence)

Holm's adjustment is over all contrasts of the study that could be made, in all regimes and of all figures together:
those that ask for a difference, and apart from them those that ask for equality.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from shoal.apps.lab.contrasts import Contrast, compare
from shoal.apps.lab.intervals import RESAMPLES, Interval, interquartile_mean
from shoal.apps.lab.results import Figures, Results, Runs, by_seed, cuts, known, scores
from shoal.apps.lab.study import ONLY, ContrastSpec

EQUAL = "equal within the margin"
MET, NOT_MET, OPEN, UNASKED = "met", "not met", "cannot be concluded", "nothing was expected"
PAPER = {"6/2": 1.52, "4/4": 1.95, "2/6": 1.68}
"""Cumulative reward over that of 8/0 (arXiv 2509.08721, section 5), over the training set as it seems."""


@dataclass(frozen=True)
class Verdict:
    """One contrast in one regime."""

    name: str
    regime: str
    spec: ContrastSpec
    figure: str
    contrast: Contrast | None
    """None where it could not be made: `sentence` says why."""
    relative: Interval | None
    """The difference as a share of the control's interquartile mean; None where that is 0 or may be."""
    found: str
    outcome: str
    """One of the four above."""
    sentence: str

    @property
    def title(self) -> str:
        return titled(self.name, self.regime)


def titled(name: str, regime: str) -> str:
    """A contrast's name with that of its regime, unless it ends so or there is but one."""
    return name if regime == ONLY or name.endswith(regime) else f"{name}, {regime}"


@dataclass(frozen=True)
class Ratio:
    """An arm over the first one, by the reward that was trained on and by the honest one."""

    arm: str
    control: str
    trained_on: Interval | None
    local: Interval | None
    paper: float | None


def verdicts(results: Results) -> list[Verdict]:
    """All contrasts of the study, regime by regime."""
    study = results.study
    planned: dict[str, tuple[str, str, ContrastSpec, str]] = {}
    tables: dict[str, dict[int, float]] = {}
    ends: dict[str, str] = {}
    faults: dict[str, str] = {}
    pairs: dict[str, tuple[str, str]] = {}
    margins: dict[str, float] = {}
    for name, spec in study.contrasts.items():
        for regime in study.paired(spec):
            figure = spec.figure or study.figure
            key = f"{name}, {regime}"
            planned[key] = (name, regime, spec, figure)
            runs = {
                arm: each for arm, each in results.runs.get(regime, {}).items() if arm in (spec.treated, spec.control)
            }
            made = _compared(runs, spec, figure, study.threshold)
            if isinstance(made, str):
                faults[key] = made
                continue
            if spec.expect == "equal":
                margin = spec.margin * abs(interquartile_mean(list(made[1].values())))
                if not margin:
                    faults[key] = f"`{figure}` of {spec.control} is 0, and so is any share of it."
                    continue
                margins[key] = margin
            pairs[key] = (f"{key}: {spec.treated}", f"{key}: {spec.control}")
            tables |= dict(zip(pairs[key], made, strict=True))
            if figure == "held_out/area_per_token":
                ends[key] = f" Areas end at {cuts(runs)[1]:.0f} tokens of a node."
    contrasts = {each.name: each for each in compare(tables, pairs, margins, alpha=study.alpha)}
    found = []
    for key, (name, regime, spec, figure) in planned.items():
        if key in faults:
            found.append(Verdict(name, regime, spec, figure, None, None, OPEN, _outcome(spec, OPEN), faults[key]))
            continue
        treated, control = (tables[arm] for arm in pairs[key])
        title = titled(name, regime)
        contrast = replace(contrasts[key], name=title, treated=spec.treated, control=spec.control)
        side = _found(contrast)
        sentence = f"{contrast.sentence}{ends.get(key, '')}"
        relative = relative_difference(treated, control)
        found.append(Verdict(name, regime, spec, figure, contrast, relative, side, _outcome(spec, side), sentence))
    return found


def relative_difference(
    treated: Mapping[int, float], control: Mapping[int, float], resamples: int = RESAMPLES, seed: int = 0
) -> Interval | None:
    """(IQM of `treated` - IQM of `control`) / IQM of `control` over the seeds that both have, with the paired
    percentile bootstrap interval (95 %). None where the control's is 0, or so near it that the interval has no end."""
    seeds = sorted(treated.keys() & control.keys())
    if not seeds:
        return None
    above, below = (np.array([table[s] for s in seeds]) for table in (treated, control))
    rows_BR = np.random.default_rng(seed).integers(0, len(seeds), (resamples, len(seeds)))
    cut = len(seeds) // 4
    iqm_B, base_B = (
        np.sort(table[rows_BR], axis=1)[:, cut : len(seeds) - cut].mean(axis=1) for table in (above, below)
    )
    base = interquartile_mean(below)
    if base <= 0:
        return None
    shares_B = np.where(base_B > 0, iqm_B / np.where(base_B > 0, base_B, 1) - 1, np.inf)
    low, high = np.quantile(shares_B, [0.025, 0.975], method="nearest")  # others would take inf from inf
    if not np.isfinite([low, high]).all():
        return None
    return Interval(interquartile_mean(above) / base - 1, float(low), float(high))


def ratios(figures: Mapping[str, Mapping[int, Figures]]) -> list[Ratio]:
    """Every arm of a regime over the first, in reward for each node and round, from `scores`: with equal numbers of
    both, the ratios of cumulative reward."""
    found: list[Ratio] = []
    control, *others = figures
    for arm in others:
        shares = []
        for key in ("reward/trained_on", "reward/local"):
            one, other = (known(figures[name], f"per_round/{key}") for name in (arm, control))
            by = relative_difference(one, other)
            shares.append(by and Interval(1 + by.value, 1 + by.low, 1 + by.high))
        found.append(Ratio(arm, control, shares[0], shares[1], PAPER.get(arm) if control == "8/0" else None))
    return found


def _compared(
    runs: Runs, spec: ContrastSpec, figure: str, threshold: float
) -> tuple[dict[int, float], dict[int, float]] | str:
    """The figure of both arms by seed, `runs` being theirs alone, as areas end with the least; or why there is none."""
    arms = (spec.treated, spec.control)
    for arm in arms:
        if arm not in runs:
            return f"No run of {arm} is finished."
    if not runs[spec.treated].keys() & runs[spec.control].keys():
        return f"No seed is finished in both {spec.treated} and {spec.control}."
    figures = scores(runs, threshold)
    for arm in arms:
        missing = [seed for seed, value in by_seed(figures[arm], figure).items() if value is None]
        if missing:
            return f"`{figure}` was not measured in {arm}, seeds {', '.join(map(str, missing))}."
    return known(figures[spec.treated], figure), known(figures[spec.control], figure)


def _found(contrast: Contrast) -> str:
    """What may be said."""
    if contrast.margin is None:
        return contrast.side if contrast.conclusive else OPEN
    if contrast.conclusive:
        return EQUAL
    return contrast.side if contrast.beyond else OPEN


def _outcome(spec: ContrastSpec, found: str) -> str:
    if spec.expect == "unknown":
        return UNASKED
    if found == OPEN:
        return OPEN
    return MET if found == (EQUAL if spec.expect == "equal" else spec.expect) else NOT_MET
