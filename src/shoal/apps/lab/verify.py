"""`shoal lab verify`: a published report, recomputed from its own figures by seed with scipy and numpy alone.

    verify(Path("docs/studies/default"), print)      # a line for each kind; 1 if anything disagrees, else 0

Checked: every figure of every arm, ratios, gains, contrasts with their tests and sentences, and the numbers in the
tables of report.md. What cannot be checked, since a report of an earlier version has too little, is counted and said.
Curves are not checked: the CSV files have them over seeds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from shoal.apps.lab.verify_read import Contrast, Published, Regime, Span, published_file, read_published
from shoal.apps.lab.verify_scipy import (
    EXACT_UP_TO,
    TOLERANCE,
    Array,
    close,
    difference,
    ends_agree,
    flip_p,
    holm,
    iqm,
    p_agrees,
    resampled,
    share,
    smallest_p,
    wins,
)
from shoal.apps.lab.verify_text import numbers_of, strangers
from shoal.errors import UserError
from shoal.untrusted import printable, read_regular

SHOWN: Final = 50
"""Most disagreements of a kind that are printed."""
ABOVE_BLIND: Final = ("held_out/area_per_update", "held_out/area_per_flop", "held_out/final")
GAINED: Final = {"trained_on": "per_round/reward/trained_on", "local": "per_round/reward/local"}
EQUAL, OPEN = "equal within the margin", "cannot be concluded"

NONE: Final = np.array([], dtype=float)

Values = Mapping[str, float | None]
"""A figure by seed."""


@dataclass
class Tally:
    """What was checked of one kind."""

    agree: int = 0
    differ: list[str] = field(default_factory=list)
    unchecked: int = 0

    def check(self, where: str, reported: Any, found: Any, right: bool | None = None) -> None:
        """Counts two values; `right`: whether they agree, if that is not to be equal, or close."""
        if right is None:
            numbers = isinstance(reported, int | float) and isinstance(found, int | float)
            right = close(reported, found) if numbers else reported == found
        if right:
            self.agree += 1
        else:
            self.differ.append(f"{where}: {_shown(reported)} is reported, {_shown(found)} is found")


Tallies = defaultdict[str, Tally]
"""By kind."""


def verify(path: Path, say: Callable[[str], None]) -> int:
    """Checks a report: its folder, that of its study, or its report.json. Returns the exit code. Raises `UserError`."""
    try:
        import scipy  # noqa: F401
    except ImportError as error:
        raise UserError("`shoal lab verify` needs scipy, which is not installed: pip install scipy") from error
    file = published_file(path)
    report = read_published(file)
    say(f"{printable(str(file))}: {report.finished} runs, recomputed from figures by seed")
    with np.errstate(all="ignore"):
        tallies = check(report)
    _check_text(report, file.with_name("report.md"), tallies["numbers in tables of report.md"])
    for kind, tally in tallies.items():
        total = tally.agree + len(tally.differ)
        said = [f"{tally.agree} of {total} agree"] if total else []
        said += [f"{tally.unchecked} not checked, as the report lacks what that needs"] if tally.unchecked else []
        if said:
            say(f"{kind}: {'; '.join(said)}")
        for line in tally.differ[:SHOWN]:
            say(f"  {printable(line, 400)}")
        if len(tally.differ) > SHOWN:
            say(f"  and {len(tally.differ) - SHOWN} more")
    say(
        f"Resampling is random: an end of an interval may be off by {100 * TOLERANCE:.1f} percentage points of scipy's "
        f"resamples, and p of more than {EXACT_UP_TO} pairs by as many standard errors. All else agrees to rounding."
    )
    wrong = sum(len(tally.differ) for tally in tallies.values())
    say(f"{wrong} disagree" if wrong else "All that could be checked agrees.")
    return 1 if wrong else 0


def check(report: Published) -> Tallies:
    """Recomputes a report."""
    found: Tallies = defaultdict(Tally)
    for name, regime in report.regimes.items():
        for arm, figures in regime.arms.items():
            for key in figures:
                _check_figure(regime, arm, key, f"{name}, {arm}, {key}", found)
        for ratio in regime.ratios:
            for key, given in (("trained_on", ratio.trained_on), ("local", ratio.local)):
                less = given and Span(value=given.value - 1, low=given.low - 1, high=given.high - 1)
                where, arms = f"{name}, {ratio.arm}, {key}", (ratio.arm, ratio.control)
                _check_relative(less, regime, arms, GAINED[key], where, found["ratios"])
        _check_horizon(regime, name, found["where areas end"])
        _check_spread(regime, name, found["who learned from whom"])
    _check_gains(report, found["gains"])
    _check_contrasts(report, found)
    _check_totals(report, found["totals"])
    return found


def _check_figure(regime: Regime, arm: str, key: str, where: str, found: Tallies) -> None:
    figure = regime.arms[arm][key]
    if figure is None:
        return
    known = _known(figure.seeds)
    mean = float(iqm(known)) if len(known) else None
    right = None if figure.missing == len(figure.seeds) - len(known) else False
    found["interquartile means"].check(where, figure.value, mean, right)
    if len(known):
        _check_ends(figure, [known], iqm, where, found["95 % intervals"])


def _check_horizon(regime: Regime, name: str, tally: Tally) -> None:
    for unit, key in (("rounds", "run/end"), ("flops", "run/end_flops")):
        ends = [end for arm in regime.arms for end in _known(_figure(regime, arm, key))]
        if ends:
            tally.check(f"{name}, {unit}", regime.areas_end.get(unit), min(ends))
        else:
            tally.unchecked += regime.areas_end.get(unit) is not None


def _check_spread(regime: Regime, name: str, tally: Tally) -> None:
    for arm, spread in regime.spread.items():
        runs = {key: _known(values) for key, values in spread.by_seed.items()}
        for key, given in (("followers", spread.followers), ("followers_reached", spread.followers_reached)):
            tally.check(f"{name}, {arm}, {key}", given, float(runs.get(key, NONE).sum()))
        for key, mean in (("first_from_others", spread.first_from_others), ("mean_lag", spread.mean_lag)):
            known = runs.get(key, NONE)
            tally.check(f"{name}, {arm}, {key}", mean, float(known.mean()) if len(known) else None)


def _check_gains(report: Published, tally: Tally) -> None:
    for name, points in report.gains.items():
        for point in points:
            regime, pair = report.regimes.get(point.regime), (point.treated, point.control)
            if not regime or not set(pair) <= regime.arms.keys():
                tally.unchecked += 1
                continue
            where = f"{name}, {point.regime}, {point.figure}"
            starts = [_known(_figure(regime, arm, "held_out/start")) for arm in pair]
            tally.check(f"{where}, start", point.x, float(iqm(np.concatenate(starts))))
            given = None
            if point.value is not None and point.low is not None and point.high is not None:
                given = Span(value=point.value, low=point.low, high=point.high)
            _check_relative(given, regime, pair, point.figure, where, tally)


def _check_totals(report: Published, tally: Tally) -> None:
    """Runs and their seconds."""
    arms = [(regime, arm) for regime in report.regimes.values() for arm in regime.arms]
    tally.check("finished runs", report.finished, sum(len(_seeds(regime, arm)) for regime, arm in arms))
    spent = [_known(_figure(regime, arm, "run/seconds")).sum() for regime, arm in arms]
    tally.check("seconds of all runs", report.seconds, math.fsum(spent))


def _check_contrasts(report: Published, found: Tallies) -> None:
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
        sides = [one.by_seed.get(arm) or (_figure(regime, arm, one.figure) if regime else {}) for arm in arms]
        both = [seed for seed in sides[0] if seed in sides[1]]
        able = bool(both) and all(value is not None for side in sides for value in side.values())
        if one.p is None:
            able = able and not (one.expect == "equal" and not iqm(_known(sides[1])))  # a share of 0 is no margin
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
            _check_relative(one.relative, regime, arms, one.figure, self.where, found["differences in percent"])
        if one.expect == "equal":
            self._check_equality(one.share * abs(float(iqm(_known(sides[1])))), found["p of equality"])
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
            _check_ends(span, [treated, control], statistic, self.where + words, ends)

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


def _check_relative(
    given: Span | None, regime: Regime, arms: tuple[str, str], name: str, where: str, tally: Tally
) -> None:
    """A difference as a share of the control, or that there is none."""
    treated, control = (_above_blind(regime, arm, name) for arm in arms)
    seeds = [seed for seed in treated if treated[seed] is not None and control.get(seed) is not None]
    above, below = (np.array([side[seed] for seed in seeds], dtype=float) for side in (treated, control))
    if not seeds or iqm(below) <= 0:
        tally.check(where, given, None)
    elif given is None:  # right if the upper end has no bound
        endless = float(np.isinf(resampled([above, below], share)).mean())
        tally.check(where, None, f"a share without bound in {endless:.1%} of resamples", endless >= 0.025 - TOLERANCE)
    else:
        tally.check(where, given.value, float(share(above, below)))
        _check_ends(given, [above, below], share, where, tally)


def _check_ends(span: Span, samples: list[Array], statistic: Callable[..., Any], where: str, tally: Tally) -> None:
    drawn = resampled(samples, statistic)
    low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")
    right = ends_agree(span.low, span.high, drawn)
    tally.check(f"{where}, interval", f"{span.low:.6g} to {span.high:.6g}", f"{low:.6g} to {high:.6g}", right)


def _check_text(report: Published, path: Path, tally: Tally) -> None:
    try:
        cells = numbers_of(read_regular(path, 8 * 2**20).decode("utf-8", "replace"))
    except OSError:
        tally.unchecked += 1
        return
    wrong = strangers(report, cells)
    tally.agree = len(cells) - len(wrong)
    tally.differ = [f"{cell} is no number of report.json" for cell in wrong]


def _seeds(regime: Regime, arm: str) -> list[str]:
    return list(next((each.seeds for each in regime.arms[arm].values() if each), {}))


def _figure(regime: Regime, arm: str, name: str) -> Values:
    """A figure by seed; None in every seed where the report has none."""
    figure = regime.arms.get(arm, {}).get(name)
    if figure:
        return figure.seeds
    return dict.fromkeys(_seeds(regime, arm)) if arm in regime.arms else {}


def _above_blind(regime: Regime, arm: str, name: str) -> Values:
    """A figure by seed; held-out pass@1 less what answers get that ignore the question, where all seeds know it."""
    values, blind = _figure(regime, arm, name), _figure(regime, arm, "held_out/blind")
    if name not in ABOVE_BLIND or None in blind.values():
        return values
    return {seed: None if value is None else value - (blind.get(seed) or 0.0) for seed, value in values.items()}


def _known(values: Values) -> Array:
    return np.array([value for value in values.values() if value is not None], dtype=float)


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
