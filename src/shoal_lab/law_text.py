"""`shoal lab law`: the law of a study's arms, and what follows from it for the machine of a run."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from shoal.errors import UserError, nearest
from shoal_lab.law import FEWEST_ARMS, Law, Point, errors, fit, rank_correlation, read_points
from shoal_lab.law_settings import Division, Pilot, divide, divisions, read_pilots
from shoal_lab.results import read_results

SHOWN: Final = 5
"""Divisions that are shown."""


def show_law(console: Console, folder: Path, tested: Collection[str], pilots: Sequence[Path] = ()) -> None:
    """Prints the law of a study's folder without the arms `tested`, how it does on those, and, for the folders of
    pilot runs, the best divisions of a round. Raises `UserError`."""
    results = read_results(folder)
    for arm in tested:
        if arm not in results.study.arms:
            raise UserError(f"--test {arm!r}: the study has no such arm; {nearest(arm, results.study.arms)}")
    pilot = read_pilots(pilots) if pilots else None
    points = read_points(results)
    count = Counter(point.regime for point in points if point.arm not in tested)
    points = [point for point in points if count[point.regime] >= FEWEST_ARMS]
    fitted = [point for point in points if point.arm not in tested]
    law = fit(fitted)
    console.print(
        f"updates = scale / live ^ {law.exponent:.2f}   (95 % interval {law.low:.2f} to {law.high:.2f})\n"
        "updates: until the held-out pass@1 that every arm of a regime reaches\n"
        "live: groups in an update whose rewards differ\n"
    )
    console.print(_table(law, points, tested), "")
    for regime in results.runs:
        if count[regime] < FEWEST_ARMS:
            console.print(f"without {regime}: it has {count[regime]} arms to fit, and {FEWEST_ARMS} are needed")
    if results.unfinished:
        console.print(f"without {len(results.unfinished)} unfinished runs\n")
    for name, some in (("fitted", fitted), ("tried", [point for point in points if point.arm in tested])):
        if some:
            sizes = [abs(error) for error in errors(law, some)]
            console.print(
                f"{name}: {len(some)} arm{'s' * (len(some) > 1)}, median error {statistics.median(sizes):.0%}, "
                f"largest {max(sizes):.0%}, Spearman {rank_correlation(law, some):.2f}"
            )
    if pilot:
        _show_divisions(console, law, fitted, pilot, pilots[-1])


def _table(law: Law, points: list[Point], tested: Collection[str]) -> Table:
    table = Table("regime", "arm", "", box=None, pad_edge=False)
    for title in ("live groups", "updates", "by the law", "off by"):
        table.add_column(title, justify="right")
    for point, error in zip(points, errors(law, points), strict=True):
        said = f"{law.predict(point.regime, point.live):.1f}"
        kind = "tried" if point.arm in tested else "fitted"
        table.add_row(point.regime, point.arm, kind, f"{point.live:.2f}", f"{point.updates:.1f}", said, f"{error:+.0%}")
    return table


def _show_divisions(console: Console, law: Law, fitted: list[Point], pilot: Pilot, folder: Path) -> None:
    within = min(point.live for point in fitted), max(point.live for point in fitted)
    found = divisions(law.exponent, pilot, {point.generations for point in fitted}, within)
    if not found:
        raise UserError(
            f"no division of a round of {folder} has {within[0]:.1f} to {within[1]:.1f} live groups, where the "
            f"law was seen to hold: {pilot.live(pilot.generations):.0%} of its groups are live"
        )
    now = divide(pilot, pilot.local, pilot.external, pilot.generations, pilot.fill)
    console.print(
        f"\n{folder}: {pilot.nodes} nodes, {pilot.live(pilot.generations):.0%} of groups are live; "
        f"{pilot.fixed:.3g} s a round, {pilot.answering:.3g} s an answer, {pilot.learning:.3g} s to learn from one\n"
    )
    table = Table("", "I", "J", "G", "fill", box=None, pad_edge=False)
    for title in ("live groups", "s a round", "learns"):
        table.add_column(title, justify="right")
    for rank, one in enumerate([*found[:SHOWN], now]):
        table.add_row("now" if one is now else f"{rank + 1}", *_row(one, law.exponent, now))
    console.print(table)
    best = found[0]
    fill = f" --fill {str(best.fill).lower()}" if best.external else ""
    console.print(f"\n  --local {best.local} --external {best.external} --num-generations {best.generations}{fill}")
    console.print("This is what the law says, at the learning rate of the study. It is no measurement.")


def _row(one: Division, exponent: float, now: Division) -> tuple[str, ...]:
    times = one.worth(exponent) / now.worth(exponent)
    fill = "yes" if one.fill else "no"
    counts = f"{one.local}", f"{one.external}", f"{one.generations}"
    return *counts, fill if one.external else "–", f"{one.live:.2f}", f"{one.seconds:.2f}", f"× {times:.2f}"
