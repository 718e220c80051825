"""`shoal lab verify`: a published report, recomputed from its own figures by seed with scipy and numpy alone.

    verify(Path("docs/studies/default"), print)      # a line for each kind; 1 if anything disagrees, else 0

Checked: every figure of every arm, ratios, gains, contrasts with their tests and sentences, and the tables of
report.md, which have to be those that report.json makes. What cannot be checked, since a report of an earlier version
has too little, is counted and said. Curves are not checked: the CSV files have them over seeds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from shoal.errors import UserError
from shoal.untrusted import parse_json, printable, read_regular
from shoal_lab.verify_contrasts import check_contrasts
from shoal_lab.verify_read import MAX_BYTES, Published, Regime, Span, published_file, read_published
from shoal_lab.verify_scipy import EXACT_UP_TO, SIGMAS, TOLERANCE, iqm
from shoal_lab.verify_tally import Tallies, Tally, check_ends, check_relative, figure_of, seeds_of, values_of
from shoal_lab.verify_text import check_tables

SHOWN: Final = 50
"""Most disagreements of a kind that are printed."""
GAINED: Final = {"trained_on": "per_round/reward/trained_on", "local": "per_round/reward/local"}
NONE: Final = np.array([], dtype=float)


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
    _check_text(file, tallies["rows of the tables in report.md"])
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
        f"resamples, and p of more than {EXACT_UP_TO} pairs by {SIGMAS:g} standard errors. All else has to agree to "
        "rounding."
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
                check_relative(less, regime, arms, GAINED[key], where, found["ratios"])
        _check_horizon(regime, name, found["where areas end"])
        _check_spread(regime, name, found["who learned from whom"])
    _check_gains(report, found["gains"])
    check_contrasts(report, found)
    _check_totals(report, found["totals"])
    return found


def _check_figure(regime: Regime, arm: str, key: str, where: str, found: Tallies) -> None:
    figure = regime.arms[arm][key]
    if figure is None:
        return
    known = values_of(figure.seeds)
    mean = float(iqm(known)) if len(known) else None
    right = None if figure.missing == len(figure.seeds) - len(known) else False
    found["interquartile means"].check(where, figure.value, mean, right)
    if len(known):
        check_ends(figure, [known], iqm, where, found["95 % intervals"])


def _check_horizon(regime: Regime, name: str, tally: Tally) -> None:
    for unit, key in (("rounds", "run/end"), ("flops", "run/end_flops")):
        ends = [end for arm in regime.arms for end in values_of(figure_of(regime, arm, key))]
        if ends:
            tally.check(f"{name}, {unit}", regime.areas_end.get(unit), min(ends))
        else:
            tally.unchecked += regime.areas_end.get(unit) is not None


def _check_spread(regime: Regime, name: str, tally: Tally) -> None:
    for arm, spread in regime.spread.items():
        runs = {key: values_of(values) for key, values in spread.by_seed.items()}
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
            starts = [values_of(figure_of(regime, arm, "held_out/start")) for arm in pair]
            tally.check(f"{where}, start", point.x, float(iqm(np.concatenate(starts))))
            given = None
            if point.value is not None and point.low is not None and point.high is not None:
                given = Span(value=point.value, low=point.low, high=point.high)
            check_relative(given, regime, pair, point.figure, where, tally)


def _check_totals(report: Published, tally: Tally) -> None:
    """Runs and their seconds. A run that two arms share counts once."""
    arms = [(regime, arm) for regime in report.regimes.values() for arm in regime.arms if arm not in regime.shared_runs]
    tally.check("finished runs", report.finished, sum(len(seeds_of(regime, arm)) for regime, arm in arms))
    spent = [values_of(figure_of(regime, arm, "run/seconds")).sum() for regime, arm in arms]
    tally.check("seconds of all runs", report.seconds, math.fsum(spent))


def _check_text(file: Path, tally: Tally) -> None:
    try:
        text = read_regular(file.with_name("report.md"), 8 * 2**20).decode("utf-8", "replace")
        rows, tally.differ = check_tables(parse_json(read_regular(file, MAX_BYTES)), text)
    except (OSError, LookupError, TypeError, ValueError, AttributeError):  # none, or of another version
        tally.unchecked += 1
        return
    tally.agree = max(0, rows - len(tally.differ))
