"""`shoal lab verify`: a published report, recomputed from its own figures by seed with scipy and numpy alone.

    verify(Path("docs/studies/default"), print)      # a line for each kind; 1 if anything disagrees, else 0

Checked: every figure of every arm, ratios, gains, contrasts with their tests and sentences, and the tables of
report.md, which have to be those that report.json makes. Curves are not checked: the CSV files have them over seeds.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import numpy as np

from shoal.untrusted import parse_json, printable, read_regular
from shoal_lab.published import Contrast, Published, Regime, Span, published_file, read_published, read_report
from shoal_lab.report_text import markdown
from shoal_lab.verify_scipy import (
    EXACT_UP_TO,
    SIGMAS,
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

SHOWN: Final = 50
"""Most disagreements of a kind that are printed."""
EQUAL, OPEN = "equal within the margin", "cannot be concluded"
ABOVE_BLIND: Final = ("held_out/area_per_update", "held_out/area_per_flop", "held_out/final")
"""Read above what answers get that ignore the question."""
INTERVALS, PERCENT, CONCLUSIONS = "95 % intervals", "differences in percent", "conclusions"


def verify(path: Path, say: Callable[[str], None]) -> int:
    """Checks a report: its folder, that of its study, or its report.json. Returns the exit code. Raises `UserError`."""
    file = published_file(path)
    report = read_published(file)
    say(f"{printable(str(file))}: {report.finished} runs, recomputed from figures by seed")
    audit = Audit(report)
    with np.errstate(all="ignore"):
        audit.run()
    try:
        text = read_regular(file.with_name("report.md"), 8 * 2**20).decode("utf-8", "replace")
        rows, wrong = check_tables(parse_json(read_report(file)), text)
        audit.count("rows of the tables in report.md", max(0, rows - len(wrong)), wrong)
    except (OSError, LookupError, TypeError, ValueError, AttributeError):  # none, or of another version
        say("the tables of report.md: not checked, as there is none that this report.json could make")
    for kind in audit.agree:
        differ = audit.differ[kind]
        say(f"{kind}: {audit.agree[kind]} of {audit.agree[kind] + len(differ)} agree")
        for line in differ[:SHOWN]:
            say(f"  {printable(line, 400)}")
        if len(differ) > SHOWN:
            say(f"  and {len(differ) - SHOWN} more")
    say(
        f"Resampling is random: an end of an interval may be off by {100 * TOLERANCE:.1f} percentage points of scipy's "
        f"resamples, and p of more than {EXACT_UP_TO} pairs by {SIGMAS:g} standard errors. All else has to agree to "
        "rounding."
    )
    total = sum(map(len, audit.differ.values()))
    say(f"{total} disagree" if total else "All that could be checked agrees.")
    return 1 if total else 0


def check_tables(data: dict[str, Any], text: str) -> tuple[int, list[str]]:
    """The number of table rows that `text` should have, and those of both that differ. Raises `KeyError` and the like
    for a report of another version, or what is none."""
    right, given = ([line for line in page.splitlines() if line.startswith("|")] for page in (markdown(data), text))
    pairs = zip_longest(right, given, fillvalue="nothing")
    return len(right), [f"{row} in place of {own}" for own, row in pairs if own != row]


class Audit:
    """What of a report agrees, counted by kind, and a line for each thing that does not."""

    def __init__(self, report: Published) -> None:
        self.report = report
        self.agree: Counter[str] = Counter()
        self.differ: defaultdict[str, list[str]] = defaultdict(list)

    def count(self, kind: str, agree: int, differ: Iterable[str] = ()) -> None:
        self.agree[kind] += agree
        self.differ[kind] += differ

    def check(self, kind: str, where: str, reported: Any, found: Any, right: bool | None = None) -> None:
        """Counts two values; `right`: whether they agree, if that is not to be equal, or close."""
        if right is None:
            numbers = isinstance(reported, int | float) and isinstance(found, int | float)
            right = close(reported, found) if numbers else reported == found
        words = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in (reported, found)]
        self.count(kind, right, [] if right else [f"{where}: {words[0]} is reported, {words[1]} is found"])

    def run(self) -> None:
        """Recomputes the report."""
        for name, regime in self.report.regimes.items():
            for arm, figures in regime.arms.items():
                for key, figure in figures.items():
                    if figure is not None:
                        where, known = f"{name}, {arm}, {key}", _known(figure.seeds)
                        right = figure.missing == len(figure.seeds) - len(known) and len(known) > 0
                        self.check("missing seeds", where, figure.missing, len(figure.seeds) - len(known), right)
                        if len(known):
                            self._span("interquartile means", where, figure, [known], iqm)
            for ratio in regime.ratios:
                for key, given in (("trained_on", ratio.trained_on), ("local", ratio.local)):
                    less = given and Span(value=given.value - 1, low=given.low - 1, high=given.high - 1)
                    arms, figure_name = (ratio.arm, ratio.control), f"per_round/reward/{key}"
                    self._relative("ratios", f"{name}, {ratio.arm}, {key}", less, regime, arms, figure_name)
            for unit, key in (("rounds", "run/end"), ("flops", "run/end_flops")):
                ends = [end for arm in regime.arms for end in _known(regime.by_seed(arm, key))]
                found = float(min(ends)) if ends else None
                self.check("where areas end", f"{name}, {unit}", regime.areas_end.get(unit), found)
            for arm, spread in regime.spread.items():
                runs = {key: _known(values) for key, values in spread.by_seed.items()}
                for key in ("followers", "followers_reached", "first_from_others", "mean_lag"):
                    known = runs.get(key, np.array([]))
                    total = float(known.sum()) if key.startswith("followers") else _mean(known)
                    self.check("who learned from whom", f"{name}, {arm}, {key}", getattr(spread, key), total)
        self._gains()
        for equal in (False, True):
            self._contrasts([one for one in self.report.contrasts if (one.expect == "equal") is equal])
        self._totals()

    def _span(self, kind: str, where: str, span: Span, samples: list[Array], statistic: Callable[..., Any]) -> None:
        """A statistic of runs, and its interval."""
        self.check(kind, where, span.value, float(statistic(*samples)))
        drawn = resampled(samples, statistic)
        low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")
        words = f"{span.low:.6g} to {span.high:.6g}", f"{low:.6g} to {high:.6g}"
        self.check(INTERVALS, f"{where}, interval", *words, ends_agree(span.low, span.high, drawn))

    def _relative(
        self, kind: str, where: str, given: Span | None, regime: Regime, arms: tuple[str, str], name: str
    ) -> None:
        """A difference as a share of the control, or that there is none."""
        treated, control = (regime.by_seed(arm, name) for arm in arms)
        blind = [regime.by_seed(arm, "held_out/blind") for arm in arms]
        if name in ABOVE_BLIND and not any(None in each.values() for each in blind):
            treated, control = (
                {seed: None if value is None else value - (base.get(seed) or 0.0) for seed, value in each.items()}
                for each, base in zip((treated, control), blind, strict=True)
            )
        seeds = [seed for seed in treated if treated[seed] is not None and control.get(seed) is not None]
        above, below = (np.array([side[seed] for seed in seeds], dtype=float) for side in (treated, control))
        if not seeds or iqm(below) <= 0:
            self.check(kind, where, given, None)
        elif given is None:  # right if the upper end has no bound
            endless = float(np.isinf(resampled([above, below], share)).mean())
            words = f"a share without bound in {endless:.1%} of resamples"
            self.check(kind, where, None, words, endless >= 0.025 - TOLERANCE)
        else:
            self._span(kind, where, given, [above, below], share)

    def _gains(self) -> None:
        for name, points in self.report.gains.items():
            for point in points:
                regime, arms = self.report.regimes.get(point.regime), (point.treated, point.control)
                where = f"{name}, {point.regime}, {point.figure}"
                if not regime or not set(arms) <= regime.arms.keys():
                    self.check("gains", where, "a gain", "no such arms")
                    continue
                starts = np.concatenate([_known(regime.by_seed(arm, "held_out/start")) for arm in arms])
                self.check("gains", f"{where}, start", point.x, float(iqm(starts)))
                given = None
                if point.value is not None and point.low is not None and point.high is not None:
                    given = Span(value=point.value, low=point.low, high=point.high)
                self._relative("gains", where, given, regime, arms, point.figure)

    def _totals(self) -> None:
        """Runs and their seconds. A run that two arms share counts once."""
        own = [(each, arm) for each in self.report.regimes.values() for arm in each.arms if arm not in each.shared_runs]
        each = [regime.by_seed(arm, "run/seconds") for regime, arm in own]
        self.check("totals", "finished runs", self.report.finished, sum(map(len, each)))
        seconds = math.fsum(_known(seeds).sum() for seeds in each)
        self.check("totals", "seconds of all runs", self.report.seconds, seconds)

    def _contrasts(self, family: list[Contrast]) -> None:
        """Tests, Holm's adjustment over those of a family, what is concluded, and whether the sentence says so."""
        tests = [(one, found) for one in family if (found := self._test(one)) is not None]
        adjusted = [holm([found[kind] for _, found in tests]) for kind in range(3)]
        for (one, (*_, mean)), p, beyond, smallest in zip(tests, *adjusted, strict=True):
            where, equal = _where(one), one.expect == "equal"
            self.check("p, adjusted by Holm", where, one.adjusted_p, p)
            self.check("the smallest p", where, one.smallest_adjusted_p, smallest)
            if equal:
                self.check("p, adjusted by Holm", where, one.adjusted_beyond_p, beyond)
            came = "above" if mean > 0 else "below"
            if equal and p <= self.report.alpha:
                came = EQUAL
            elif (beyond if equal else p) > self.report.alpha:
                came = OPEN
            self._words(one, came, smallest > self.report.alpha)

    def _test(self, one: Contrast) -> tuple[float, float, float, float] | None:
        """p, p of a difference beyond the margin, the smallest p, and the mean difference of a contrast, recomputed;
        None for one that could not be made."""
        regime, arms, where = self.report.regimes.get(one.regime), (one.treated, one.control), _where(one)
        sides = [regime.by_seed(arm, one.figure) if regime else {} for arm in arms]
        both = [seed for seed in sides[0] if seed in sides[1]]
        able = bool(both) and all(value is not None for side in sides for value in side.values())
        if one.p is None:
            able = able and not (one.expect == "equal" and not iqm(_known(sides[1])))  # a share of 0 is no margin
            self.check(CONCLUSIONS, where, one.found, OPEN, one.found == OPEN and not able)
            return None
        if not able or regime is None:
            self.check(CONCLUSIONS, where, "a test", "no figures by seed for one")
            return None
        treated, control = (np.array([side[seed] for seed in both], dtype=float) for side in sides)
        moved = treated - control
        kind = "differences of contrasts"
        self.check(kind, f"{where}, of means", one.mean_difference, float(moved.mean()))
        for words, span, statistic in (("", one.difference, difference), (", P(improvement)", one.improvement, wins)):
            if span is None:
                self.check(kind, where + words, None, float(statistic(treated, control)))
            else:
                self._span(kind, where + words, span, [treated, control], statistic)
        self._relative(PERCENT, where, one.relative, regime, arms, one.figure)
        p, beyond = one.p, 1.0
        if one.expect == "equal":  # two one-sided tests, and two for a difference beyond the margin
            margin = one.share * abs(float(iqm(_known(sides[1]))))
            self.check("p of equality", f"{where}, margin", one.margin, margin)
            inside = max(flip_p(moved + margin, "greater"), flip_p(margin - moved, "greater"))
            outside = min(1.0, 2 * min(flip_p(moved - margin, "greater"), flip_p(-moved - margin, "greater")))
            p, beyond = self._p(one, one.p, inside, both), self._p(one, one.beyond_p, outside, both)
        else:
            p = self._p(one, one.p, flip_p(moved), both)
        return p, beyond, smallest_p(moved, one.expect == "equal"), float(moved.mean())

    def _p(self, one: Contrast, reported: float | None, found: float, pairs: list[str]) -> float:
        """The p to go on with: the reported one if it agrees, so that noise decides nothing."""
        right = reported is not None and p_agrees(reported, found, len(pairs))
        kind = "p of equality" if one.expect == "equal" else "p of differences"
        self.check(kind, _where(one), reported, found, right)
        return reported if right and reported is not None else found

    def _words(self, one: Contrast, came: str, hopeless: bool) -> None:
        """Whether the outcome follows from the tests, and the sentence says it with the same numbers."""
        where = _where(one)
        self.check(CONCLUSIONS, where, one.found, came)
        met = "met" if came == (EQUAL if one.expect == "equal" else one.expect) else "not met"
        outcome = "nothing was expected" if one.expect == "unknown" else OPEN if came == OPEN else met
        self.check(CONCLUSIONS, where, one.outcome, outcome)
        if came == OPEN:
            words = ["Nothing may be concluded" if hopeless else " may be concluded"]
            p = one.smallest_adjusted_p if hopeless else one.adjusted_p
        else:
            words = ["may be said to be " + ("equal within" if came == EQUAL else came)]
            p = one.adjusted_beyond_p if one.expect == "equal" and came != EQUAL else one.adjusted_p
        words.append("" if p is None else f"{p:.3g}")
        if one.difference:
            words.append(f"{one.difference.value:+.4g} in interquartile mean")
            words.append(f"{one.difference.low:+.4g} to {one.difference.high:+.4g}")
        missing = [text for text in words if text not in one.sentence]
        self.check(
            CONCLUSIONS, f"{where}, its sentence", one.sentence, f"{'; '.join(missing)} (not in it)", not missing
        )


def _where(one: Contrast) -> str:
    return f"contrast {one.name}, {one.regime}"


def _known(values: dict[str, float | None]) -> Array:
    return np.array([value for value in values.values() if value is not None], dtype=float)


def _mean(values: Array) -> float | None:
    return float(values.mean()) if len(values) else None
