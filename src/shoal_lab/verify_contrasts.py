"""The contrasts of a report, recomputed: tests, Holm's adjustment, what is concluded, and the sentence that says it."""

from __future__ import annotations

import numpy as np

from shoal_lab.verify_read import Contrast, Published
from shoal_lab.verify_scipy import Array, difference, flip_p, holm, iqm, p_agrees, smallest_p, wins
from shoal_lab.verify_tally import Tallies, Tally, check_ends, check_relative, figure_of, values_of

EQUAL, OPEN = "equal within the margin", "cannot be concluded"


def check_contrasts(report: Published, found: Tallies) -> None:
    """Tests, Holm's adjustment over those of a kind, what is concluded, and whether the sentence says so."""
    made = [_Test(report, one, found) for one in report.contrasts]
    for equal in (False, True):
        kind = {place: test for place, test in enumerate(made) if test.made and (test.one.expect == "equal") is equal}
        adjusted = holm({place: test.p for place, test in kind.items()})
        smallest = holm({place: test.smallest for place, test in kind.items()})
        beyond = holm({place: test.beyond for place, test in kind.items()})
        for place, test in kind.items():
            found["p, adjusted by Holm"].check(test.where, test.one.adjusted_p, adjusted[place])
            if equal and test.one.adjusted_beyond_p is None:
                found["p, adjusted by Holm"].unchecked += 1
            elif equal:
                found["p, adjusted by Holm"].check(test.where, test.one.adjusted_beyond_p, beyond[place])
            if test.moved is not None:
                found["the smallest p"].check(test.where, test.one.smallest_adjusted_p, smallest[place])
                came = test.came(adjusted[place], beyond[place], report.alpha)
                _check_words(test.one, came, smallest[place] > report.alpha, test.where, found["conclusions"])


class _Test:
    """A contrast and its tests, recomputed."""

    def __init__(self, report: Published, one: Contrast, found: Tallies) -> None:
        self.one, self.where = one, f"contrast {one.title}"
        self.made = one.p is not None
        self.p = self.smallest = self.beyond = 1.0
        self.moved: Array | None = None
        """Differences of pairs; None if they cannot be known."""
        regime, arms = report.regimes.get(one.regime), (one.treated, one.control)
        sides = [one.by_seed.get(arm) or (figure_of(regime, arm, one.figure) if regime else {}) for arm in arms]
        both = [seed for seed in sides[0] if seed in sides[1]]
        able = bool(both) and all(value is not None for side in sides for value in side.values())
        if one.p is None:
            able = able and not (one.expect == "equal" and not iqm(values_of(sides[1])))  # a share of 0 is no margin
            found["conclusions"].check(self.where, one.found, OPEN, one.found == OPEN and not able)
            return
        if not able:
            found["conclusions"].unchecked += 1
            self.p, self.smallest = one.p, one.smallest_adjusted_p or 0.0
            self.beyond = 1.0 if one.beyond_p is None else one.beyond_p
            return
        treated, control = (np.array([side[seed] for seed in both], dtype=float) for side in sides)
        self.moved = treated - control
        self.smallest = smallest_p(self.moved, one.expect == "equal")
        self._check_sizes(treated, control, found)
        if one.by_seed or not regime:
            found["differences in percent"].unchecked += 1
        else:
            check_relative(one.relative, regime, arms, one.figure, self.where, found["differences in percent"])
        if one.expect == "equal":
            self._check_equality(one.share * abs(float(iqm(values_of(sides[1])))), found["p of equality"])
        else:
            self.p = self._checked_p(one.p, flip_p(self.moved), found["p of differences"])

    def came(self, adjusted_p: float, adjusted_beyond: float, alpha: float) -> str:
        """above, below, `EQUAL` or `OPEN`."""
        equal = self.one.expect == "equal"
        if equal and adjusted_p <= alpha:
            return EQUAL
        if (adjusted_beyond if equal else adjusted_p) > alpha or self.moved is None:
            return OPEN
        return "above" if self.moved.mean() > 0 else "below"

    def _check_sizes(self, treated: Array, control: Array, found: Tallies) -> None:
        one, tally, ends = self.one, found["differences of contrasts"], found["95 % intervals"]
        tally.check(f"{self.where}, of means", one.mean_difference, float((treated - control).mean()))
        for words, span, statistic in (("", one.difference, difference), (", P(improvement)", one.improvement, wins)):
            if span is None:
                tally.unchecked += 1
                continue
            tally.check(self.where + words, span.value, float(statistic(treated, control)))
            check_ends(span, [treated, control], statistic, self.where + words, ends)

    def _check_equality(self, margin: float, tally: Tally) -> None:
        """Two one-sided tests, and two for a difference beyond the margin."""
        assert self.moved is not None
        one, moved = self.one, self.moved
        tally.check(f"{self.where}, margin", one.margin, margin)
        inside = max(flip_p(moved + margin, "greater"), flip_p(margin - moved, "greater"))
        outside = min(1.0, 2 * min(flip_p(moved - margin, "greater"), flip_p(-moved - margin, "greater")))
        self.p, self.beyond = self._checked_p(one.p, inside, tally), self._checked_p(one.beyond_p, outside, tally)

    def _checked_p(self, reported: float | None, found: float, tally: Tally) -> float:
        """The p to go on with: the reported one if it agrees, so that noise decides nothing."""
        assert self.moved is not None
        right = reported is not None and p_agrees(reported, found, len(self.moved))
        tally.check(self.where, reported, found, right)
        return reported if right and reported is not None else found


def _check_words(one: Contrast, came: str, hopeless: bool, where: str, tally: Tally) -> None:
    """Whether the outcome follows from the tests, and the sentence says it with the same numbers."""
    tally.check(where, one.found, came)
    outcome = OPEN if came == OPEN else "met" if came == (EQUAL if one.expect == "equal" else one.expect) else "not met"
    tally.check(where, one.outcome, "nothing was expected" if one.expect == "unknown" else outcome)
    if came == OPEN:
        said, p = ("Nothing", one.smallest_adjusted_p) if hopeless else ("", one.adjusted_p)
        words = [f"{said} may be concluded"]
    else:
        words = ["may be said to be " + ("equal within" if came == EQUAL else came)]
        p = one.adjusted_beyond_p if one.expect == "equal" and came != EQUAL else one.adjusted_p
    words.append("" if p is None else f"{p:.3g}")
    if one.difference:
        words.append(f"{one.difference.value:+.4g} in interquartile mean")
        words.append(f"{one.difference.low:+.4g} to {one.difference.high:+.4g}")
    missing = [text for text in words if text not in one.sentence]
    tally.check(f"{where}, its sentence", one.sentence, "; ".join(missing) + " (not in it)", not missing)
