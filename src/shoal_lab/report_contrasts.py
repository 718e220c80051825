"""What was expected of a study, beside what came out.

    for verdict in verdicts(results):
        print(verdict.title, verdict.spec.expect, verdict.outcome, verdict.sentence)

Holm's adjustment is over all contrasts of the study that could be made, in all regimes and of all figures together:
once for those that ask for a difference, once for those that ask for equality.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from shoal_lab.contrasts import Contrast, compare
from shoal_lab.measures import FEWEST
from shoal_lab.results import Results, by_seed
from shoal_lab.statistics import Interval, interquartile_mean, relative_difference
from shoal_lab.study import ONLY, ContrastSpec

EQUAL = "equal within the margin"
MET, NOT_MET, OPEN, UNASKED = "met", "not met", "cannot be concluded", "nothing was expected"
PAPER = {"6/2": 1.52, "4/4": 1.95, "2/6": 1.68}
"""Cumulative reward over that of 8/0 (arXiv 2509.08721, section 5), over the training set as it seems."""
ABOVE_BLIND = ("held_out/area_per_update", "held_out/area_per_flop", "held_out/final")
"""Figures that are held-out pass@1."""
BySeed = dict[int, float]


@dataclass(frozen=True)
class Verdict:
    """One contrast in one regime."""

    name: str
    regime: str
    spec: ContrastSpec
    figure: str
    sentence: str
    contrast: Contrast | None = None
    """None where it could not be made: `sentence` says why."""
    relative: Interval | None = None
    """The difference as a share of the control's interquartile mean; None where that is 0 or may be."""

    @property
    def title(self) -> str:
        return titled(self.name, self.regime)

    @property
    def found(self) -> str:
        """above, below, `EQUAL` or `OPEN`."""
        contrast = self.contrast
        if contrast is None:
            return OPEN
        if contrast.margin is None:
            return contrast.side if contrast.conclusive else OPEN
        if contrast.conclusive:
            return EQUAL
        return contrast.side if contrast.beyond else OPEN

    @property
    def outcome(self) -> str:
        """`MET`, `NOT_MET`, `OPEN` or `UNASKED`."""
        expect = self.spec.expect
        if expect == "unknown":
            return UNASKED
        if self.found == OPEN:
            return OPEN
        return MET if self.found == (EQUAL if expect == "equal" else expect) else NOT_MET


def titled(name: str, regime: str) -> str:
    """A contrast's name with that of its regime, unless it ends so or there is but one."""
    return name if regime == ONLY or name.endswith(regime) else f"{name}, {regime}"


def verdicts(results: Results) -> list[Verdict]:
    """All contrasts of the study, regime by regime."""
    study = results.study
    planned: dict[str, Verdict] = {}
    tables: dict[str, BySeed] = {}
    pairs: dict[str, tuple[str, str]] = {}
    margins: dict[str, float] = {}
    for name, spec in study.contrasts.items():
        for regime in study.paired(spec):
            key, figure = f"{name}, {regime}", spec.figure or study.figure
            made = _compared(results.figures.get(regime, pd.DataFrame()), spec, figure)
            if isinstance(made, str):
                planned[key] = Verdict(name, regime, spec, figure, made)
                continue
            treated, control, relative = made
            pairs[key] = (f"{key}: {spec.treated}", f"{key}: {spec.control}")
            tables |= dict(zip(pairs[key], (treated, control), strict=True))
            if spec.expect == "equal":
                margins[key] = spec.margin * abs(interquartile_mean(list(control.values())))
            planned[key] = Verdict(name, regime, spec, figure, "", None, relative)
    for contrast in compare(tables, pairs, margins, alpha=study.alpha):
        verdict = planned[contrast.name]
        spec = verdict.spec
        contrast = replace(contrast, name=verdict.title, treated=spec.treated, control=spec.control)
        key = f"{verdict.name}, {verdict.regime}"
        planned[key] = replace(verdict, contrast=contrast, sentence=contrast.sentence)
    return list(planned.values())


def _compared(figures: pd.DataFrame, spec: ContrastSpec, figure: str) -> tuple[BySeed, BySeed, Interval | None] | str:
    """The figure of both arms by seed, and `gain_of` it; or why there is none. `figures`: of their regime."""
    arms = (spec.treated, spec.control)
    for arm in arms:
        if figures.empty or arm not in figures.index.unique("arm"):
            return f"No run of {arm} is finished."
    treated, control = (by_seed(figures, arm, figure) for arm in arms)
    if not len(treated.index.intersection(control.index)):
        return f"No seed is finished in both {spec.treated} and {spec.control}."
    for arm, values in zip(arms, (treated, control), strict=True):
        if values.isna().any():
            seeds = ", ".join(map(str, values[values.isna()].index))
            few = f" (it needs {FEWEST} evaluations before areas end)" if figure.endswith("area_per_flop") else ""
            return f"`{figure}` was not measured in {arm}, seeds {seeds}{few}."
    if spec.expect == "equal" and not interquartile_mean(control):
        return f"`{figure}` of {spec.control} is 0, and so is any share of it."
    return treated.to_dict(), control.to_dict(), gain_of(figures, figure, spec.treated, spec.control)


def _relative(treated: pd.Series, control: pd.Series) -> Interval | None:
    """`relative_difference` over the seeds that both have."""
    both = pd.concat([treated, control], axis=1, join="inner").dropna().sort_index()
    return relative_difference(both.iloc[:, 0], both.iloc[:, 1]) if len(both) else None


def gain_of(figures: pd.DataFrame, name: str, treated: str, control: str) -> Interval | None:
    """What `treated` gains over `control` in one of the `scores`, as a share; None where it was not measured. Held-out
    pass@1 is read above what answers get that ignore the question, where that is known."""
    values = [by_seed(figures, arm, name) for arm in (treated, control)]
    blind = [by_seed(figures, arm, "held_out/blind") for arm in (treated, control)]
    if name in ABOVE_BLIND and all(each.notna().all() for each in blind):
        values = [value - each for value, each in zip(values, blind, strict=True)]
    return _relative(*values)


def ratios(figures: pd.DataFrame) -> list[dict[str, Any]]:
    """The reward of every arm of a regime over that of the first, per node and round, and the paper's."""
    found = []
    control, *others = figures.index.unique("arm")
    for arm in others:
        row: dict[str, Any] = {"arm": arm, "control": control}
        for name, key in (("trained_on", "reward/trained_on"), ("local", "reward/local")):
            gain = gain_of(figures, f"per_round/{key}", arm, control)
            row[name] = gain and {end: 1 + value for end, value in asdict(gain).items()}
        found.append(row | {"paper": PAPER.get(arm) if control == "8/0" else None})
    return found
