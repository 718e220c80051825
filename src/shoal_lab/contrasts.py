"""What can be concluded from a few swarm runs, in sentences that claim no more than the tests do.

    scores = {"4/4": {1: 0.31, 2: 0.28, ...}, "8/0": {1: 0.25, 2: 0.27, ...}}      # arm -> seed -> a figure of that run
    for contrast in compare(scores, {"sharing": ("4/4", "8/0"), "too much": ("2/6", "4/4")}):
        print(contrast.sentence)
    for verdict in verdicts(results):                                              # what a study expected
        print(verdict.title, verdict.spec.expect, verdict.outcome, verdict.sentence)

Holm's adjustment is over all contrasts of a study that could be made, in all regimes and of all figures together: once
for those that ask for a difference, once for those that ask for equality.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from shoal_lab.measures import FEWEST
from shoal_lab.results import Results, by_seed
from shoal_lab.statistics import (
    Array,
    Interval,
    equivalence_test,
    finite,
    holm,
    interquartile_mean,
    iqm_difference,
    pairs_needed,
    probability_of_improvement,
    relative_difference,
    sign_flip_test,
)
from shoal_lab.study import ONLY, ContrastSpec

FEW = 10
"""With fewer seeds the interval is too narrow, and the sentence says so."""


@dataclass(frozen=True)
class Contrast:
    """One comparison, named before the runs, of one figure of each run of two arms."""

    name: str
    treated: str
    control: str
    seeds: int
    """Pairs of runs."""
    unpaired: tuple[int, ...]
    """Seeds that only one of the arms has: left out, and the sentence says so."""
    difference: Interval
    """Of interquartile means, `treated` less `control`, with the paired bootstrap interval."""
    mean_difference: float
    """What is tested."""
    improvement: Interval
    """Probability that a run of `treated` is above one of `control`."""
    p: float
    adjusted_p: float
    """Holm's adjustment over all contrasts of its kind: those that ask for a difference, or those for equality."""
    smallest_adjusted_p: float
    """The best that could come out, with these numbers of pairs in all contrasts."""
    contrasts: int
    """Of its kind."""
    alpha: float
    level: float = 0.95
    margin: float | None = None
    """The margin for equality; None where a difference is asked for."""
    beyond_p: float | None = None
    """With a margin: p of a difference larger than that."""
    adjusted_beyond_p: float | None = None
    """`beyond_p` after Holm's adjustment over all contrasts that ask for equality."""

    @property
    def conclusive(self) -> bool:
        """Whether the arms differ, or are equal within the margin, whichever was asked."""
        return self.adjusted_p <= self.alpha

    @property
    def beyond(self) -> bool:
        """Whether the arms differ by more than the margin."""
        p = self.adjusted_beyond_p
        return p is not None and not self.conclusive and p <= self.alpha

    @property
    def side(self) -> str:
        return "above" if self.mean_difference > 0 else "below"

    @property
    def sentence(self) -> str:
        """What was seen, what can be concluded from it, and what cannot."""
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
        if self.smallest_adjusted_p > self.alpha and not self.beyond:
            return (
                f"Nothing may be concluded: with {seeds} the smallest p that can come out{over} is "
                f"{self.smallest_adjusted_p:.3g}, so nothing can reach {self.alpha:g}; "
                f"{pairs_needed(self.alpha, self.contrasts, 2 if self.margin is None else 1)} seeds could."
            )
        if self.margin is not None:
            return self._closeness(p, over)
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

    def _closeness(self, p: str, over: str) -> str:
        span = f"within ±{self.margin:.3g}"
        if self.conclusive:
            return f"The means may be said to be equal {span} (two one-sided tests, {p}) in this setting."
        if self.beyond:
            return (
                f"The mean of {self.treated} may be said to be {self.side} that of {self.control} by more than "
                f"{self.margin:.3g} (p = {self.adjusted_beyond_p:.3g}{over}) in this setting."
            )
        found = f"Neither that the means are equal {span} ({p}) nor that they differ by more may be concluded"
        if not self.difference.low <= 0 <= self.difference.high:
            side = "above" if self.difference.low > 0 else "below"
            found += f"; the whole interval of the interquartile mean has {self.treated} {side} {self.control}"
        return found + "."


def compare(
    scores: Mapping[str, Mapping[int, float]],
    contrasts: Mapping[str, tuple[str, str]],
    margins: Mapping[str, float] | None = None,
    alpha: float = 0.05,
) -> list[Contrast]:
    """All `contrasts` (name -> treated arm, control arm) of a figure, given for each arm by seed. Those with one of the
    `margins` ask whether the arms are equal within it, the others whether they differ; Holm's adjustment is over those
    of a kind.

    Raises `ValueError` for an arm without scores, arms that share no seed, or a figure that is not finite: what
    could not be measured in one run (a threshold never reached) needs a figure that says so, not a run left out.
    """
    margins = margins or {}
    drawn: dict[str, tuple[list[int], Array, Array]] = {}
    for name, (treated, control) in contrasts.items():
        for arm in (treated, control):
            if arm not in scores:
                raise ValueError(f"contrast {name}: no scores of arm {arm}, only of {', '.join(scores) or 'none'}")
        seeds = sorted(scores[treated].keys() & scores[control].keys())
        if not seeds:
            raise ValueError(f"contrast {name}: {treated} and {control} share no seed")
        above, below = (finite([scores[arm][s] for s in seeds]) for arm in (treated, control))
        drawn[name] = (seeds, above, below)
    tests = {
        name: equivalence_test(above - below, margins[name]) if name in margins else sign_flip_test(above - below)
        for name, (_, above, below) in drawn.items()
    }
    adjusted: dict[str, float] = {}
    smallest: dict[str, float] = {}
    kinds = [[name for name in tests if (name in margins) is equal] for equal in (False, True)]
    for kind in kinds:
        adjusted |= holm({name: tests[name].p for name in kind})
        smallest |= holm({name: tests[name].smallest_p for name in kind})
    beyond = holm({name: test.beyond_p for name, test in tests.items() if test.beyond_p is not None})
    return [
        Contrast(
            name=name,
            treated=contrasts[name][0],
            control=contrasts[name][1],
            seeds=len(seeds),
            unpaired=tuple(sorted(scores[contrasts[name][0]].keys() ^ scores[contrasts[name][1]].keys())),
            difference=iqm_difference(above, below),
            mean_difference=float((above - below).mean()),
            improvement=probability_of_improvement(above, below),
            p=tests[name].p,
            adjusted_p=adjusted[name],
            smallest_adjusted_p=smallest[name],
            contrasts=len(kinds[name in margins]),
            alpha=alpha,
            margin=margins.get(name),
            beyond_p=tests[name].beyond_p,
            adjusted_beyond_p=beyond.get(name),
        )
        for name, (seeds, above, below) in drawn.items()
    ]


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
        """The name with that of the regime, unless it ends so or there is but one."""
        return self.name if self.regime == ONLY or self.name.endswith(self.regime) else f"{self.name}, {self.regime}"

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


def gain_of(figures: pd.DataFrame, name: str, treated: str, control: str) -> Interval | None:
    """What `treated` gains over `control` in one of the `scores`, as a share; None where it was not measured. Held-out
    pass@1 is read above what answers get that ignore the question, where that is known."""
    values = [by_seed(figures, arm, name) for arm in (treated, control)]
    blind = [by_seed(figures, arm, "held_out/blind") for arm in (treated, control)]
    if name in ABOVE_BLIND and all(each.notna().all() for each in blind):
        values = [value - each for value, each in zip(values, blind, strict=True)]
    both = pd.concat(values, axis=1, join="inner").dropna().sort_index()
    return relative_difference(both.iloc[:, 0], both.iloc[:, 1]) if len(both) else None


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
