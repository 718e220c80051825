"""What can be concluded from a few swarm runs, in sentences that claim no more than the tests do.

    shared, alone = {101: 0.31, 102: 0.28, ...}, {101: 0.25, 102: 0.27, ...}       # a figure of each run by seed
    for contrast in compare([Pairs("sharing", "4/4", "8/0", shared, alone), ...]):
        print(contrast.sentence)
    for verdict in verdicts(study.plan(), results.figures):                        # what a study expected
        print(verdict.title, verdict.spec.expect, verdict.outcome, verdict.sentence)

Holm's adjustment is over all contrasts of a study, in all regimes and figures: once for differences, once for equality.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from shoal_lab.measures import FEWEST
from shoal_lab.results import by_seed
from shoal_lab.statistics import (
    ALPHA,
    Array,
    Interval,
    equivalence_test,
    finite,
    holm,
    interquartile_mean,
    iqm_difference,
    pairs_needed,
    relative_difference,
    sign_flip_test,
)
from shoal_lab.study import ONLY, ContrastSpec

BySeed = Mapping[int, float]
FEW = 10
"""With fewer seeds the interval is too narrow, and the sentence says so."""


@dataclass(frozen=True)
class Pairs:
    """A figure of the runs of two arms by seed."""

    name: str
    treated: str
    control: str
    above: BySeed
    """Of `treated`."""
    below: BySeed
    """Of `control`."""
    margin: float | None = None
    """Asks whether the arms are equal within it; None: whether they differ."""


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
    p: float
    beyond_p: float
    """With a margin: p of a difference larger than that."""
    adjusted_p: float
    """Holm's adjustment over all contrasts of its kind: those that ask for a difference, or those for equality."""
    adjusted_beyond_p: float
    smallest_adjusted_p: float
    """The best that could come out, with these numbers of pairs in all contrasts."""
    contrasts: int
    """Of its kind."""
    margin: float | None = None
    """The margin for equality; None where a difference is asked for."""

    @property
    def conclusive(self) -> bool:
        """Whether the arms differ, or are equal within the margin, whichever was asked."""
        return self.adjusted_p <= ALPHA

    @property
    def beyond(self) -> bool:
        """Whether the arms differ by more than the margin."""
        return not self.conclusive and self.adjusted_beyond_p <= ALPHA

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
            f"(95% interval {d.low:+.4g} to {d.high:+.4g}; {seeds})."
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
        if self.smallest_adjusted_p > ALPHA and not self.beyond:
            return (
                f"Nothing may be concluded: with {seeds} the smallest p that can come out{over} is "
                f"{self.smallest_adjusted_p:.3g}, so nothing can reach {ALPHA:g}; "
                f"{pairs_needed(self.contrasts, 2 if self.margin is None else 1)} seeds could."
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
        if self.p <= ALPHA:
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


def compare(pairs: Sequence[Pairs]) -> list[Contrast]:
    """Each pair of arms compared; Holm's adjustment is over those that ask for a difference, and over those that ask
    for equality.

    Raises `ValueError` for arms that share no seed, or a figure that is not finite: what could not be measured in one
    run (a threshold never reached) needs a figure that says so, not a run left out.
    """
    drawn: list[tuple[Array, Array, tuple[int, ...]]] = []
    for each in pairs:
        sides = [pd.Series(side, dtype=float) for side in (each.above, each.below)]
        both = pd.concat(sides, axis=1, join="inner", keys=["above", "below"]).sort_index()
        if both.empty:
            raise ValueError(f"contrast {each.name}: {each.treated} and {each.control} share no seed")
        unpaired = sides[0].index.symmetric_difference(sides[1].index).tolist()
        drawn.append((finite(both["above"]), finite(both["below"]), tuple(unpaired)))
    if not drawn:
        return []
    tests = pd.DataFrame(
        [
            sign_flip_test(above - below) if each.margin is None else equivalence_test(above - below, each.margin)
            for each, (above, below, _) in zip(pairs, drawn, strict=True)
        ]
    )
    kinds = tests.groupby([each.margin is None for each in pairs])
    adjusted, sizes = kinds.transform(holm).add_prefix("adjusted_"), kinds.transform("size")
    return [
        Contrast(
            name=each.name,
            treated=each.treated,
            control=each.control,
            seeds=len(above),
            unpaired=unpaired,
            difference=iqm_difference(above, below),
            mean_difference=float((above - below).mean()),
            p=test["p"],
            beyond_p=test["beyond_p"],
            adjusted_p=test["adjusted_p"],
            adjusted_beyond_p=test["adjusted_beyond_p"],
            smallest_adjusted_p=test["adjusted_smallest_p"],
            contrasts=int(size),
            margin=each.margin,
        )
        for each, (above, below, unpaired), test, size in zip(
            pairs, drawn, tests.join(adjusted).to_dict("records"), sizes, strict=True
        )
    ]


EQUAL = "equal within the margin"
MET, NOT_MET, OPEN, UNASKED = "met", "not met", "cannot be concluded", "nothing was expected"
PAPER = {"6/2": 1.52, "4/4": 1.95, "2/6": 1.68}
"""Cumulative reward over that of 8/0 (arXiv 2509.08721, section 5), over the training set as it seems."""
ABOVE_BLIND = ("held_out/area_per_update", "held_out/area_per_flop", "held_out/final")
"""Figures that are held-out pass@1."""


@dataclass(frozen=True)
class Verdict:
    """One contrast in one regime."""

    name: str
    regime: str
    spec: ContrastSpec
    sentence: str = ""
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
        if contrast and contrast.conclusive:
            return contrast.side if contrast.margin is None else EQUAL
        return contrast.side if contrast and contrast.beyond else OPEN

    @property
    def outcome(self) -> str:
        """`MET`, `NOT_MET`, `OPEN` or `UNASKED`."""
        expect = self.spec.expect
        if expect == "unknown":
            return UNASKED
        if self.found == OPEN:
            return OPEN
        return MET if self.found == (EQUAL if expect == "equal" else expect) else NOT_MET


def verdicts(plan: Iterable[tuple[str, str, ContrastSpec]], figures: Mapping[str, pd.DataFrame]) -> list[Verdict]:
    """All contrasts of a study (`Study.plan`), by the `scores` of each regime."""
    found: list[Verdict] = []
    pairs: dict[int, Pairs] = {}
    for name, regime, spec in plan:
        verdict, table = Verdict(name, regime, spec), figures.get(regime)
        if table is None or (why := _unable(table, spec)):
            verdict = replace(verdict, sentence=f"No run of {spec.treated} is finished." if table is None else why)
        else:
            above, below = (by_seed(table, arm, spec.figure) for arm in (spec.treated, spec.control))
            margin = spec.margin * abs(interquartile_mean(below)) if spec.expect == "equal" else None
            scores = (above.to_dict(), below.to_dict())
            pairs[len(found)] = Pairs(verdict.title, spec.treated, spec.control, *scores, margin)
            verdict = replace(verdict, relative=gain_of(table, spec.figure, spec.treated, spec.control))
        found.append(verdict)
    for place, contrast in zip(pairs, compare(list(pairs.values())), strict=True):
        found[place] = replace(found[place], contrast=contrast, sentence=contrast.sentence)
    return found


def _unable(table: pd.DataFrame, spec: ContrastSpec) -> str:
    """Why a contrast cannot be made; empty if it can. `table`: the `scores` of its regime."""
    arms, figure = (spec.treated, spec.control), spec.figure
    for arm in arms:
        if arm not in table.index.unique("arm"):
            return f"No run of {arm} is finished."
    treated, control = (by_seed(table, arm, figure) for arm in arms)
    if not len(treated.index.intersection(control.index)):
        return f"No seed is finished in both {spec.treated} and {spec.control}."
    for arm, values in zip(arms, (treated, control), strict=True):
        if values.isna().any():
            seeds = ", ".join(map(str, values[values.isna()].index))
            few = f" (it needs {FEWEST} evaluations before areas end)" if figure.endswith("area_per_flop") else ""
            return f"`{figure}` was not measured in {arm}, seeds {seeds}{few}."
    if spec.expect == "equal" and not interquartile_mean(control):
        return f"`{figure}` of {spec.control} is 0, and so is any share of it."
    return ""


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
    arms = figures.index.unique("arm")
    for arm in arms[1:]:
        control = arms[0]
        row: dict[str, Any] = {"arm": arm, "control": control}
        for name, key in (("trained_on", "reward/trained_on"), ("local", "reward/local")):
            gain = gain_of(figures, f"per_round/{key}", arm, control)
            row[name] = gain and {end: 1 + value for end, value in asdict(gain).items()}
        found.append(row | {"paper": PAPER.get(arm) if control == "8/0" else None})
    return found
