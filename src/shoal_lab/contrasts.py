"""What can be concluded from a few swarm runs, in sentences that claim no more than the tests do.

scores = {"4/4": {1: 0.31, 2: 0.28, ...}, "8/0": {1: 0.25, 2: 0.27, ...}}      # arm -> seed -> a figure of that run
for contrast in compare(scores, {"sharing": ("4/4", "8/0"), "too much": ("2/6", "4/4")}):
    print(contrast.sentence)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shoal_lab.statistics import (
    Array,
    Interval,
    equivalence_test,
    finite,
    holm,
    iqm_difference,
    pairs_needed,
    probability_of_improvement,
    sign_flip_test,
)

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
    level: float
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
    *,
    alpha: float = 0.05,
    level: float = 0.95,
    seed: int = 0,
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
        name: equivalence_test(above - below, margins[name], seed=seed)
        if name in margins
        else sign_flip_test(above - below, seed=seed)
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
            difference=iqm_difference(above, below, level=level, seed=seed),
            mean_difference=float((above - below).mean()),
            improvement=probability_of_improvement(above, below, level=level, seed=seed),
            p=tests[name].p,
            adjusted_p=adjusted[name],
            smallest_adjusted_p=smallest[name],
            contrasts=len(kinds[name in margins]),
            alpha=alpha,
            level=level,
            margin=margins.get(name),
            beyond_p=tests[name].beyond_p,
            adjusted_beyond_p=beyond.get(name),
        )
        for name, (seeds, above, below) in drawn.items()
    ]
