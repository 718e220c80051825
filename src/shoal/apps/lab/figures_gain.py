"""What one arm gains over another, regime by regime, against the start or the number of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from shoal.apps.lab import drawing
from shoal.apps.lab.drawing import Picture
from shoal.apps.lab.intervals import Interval, interquartile_mean
from shoal.apps.lab.report_contrasts import gain_of
from shoal.apps.lab.results import Results, known, scores
from shoal.apps.lab.study import Gain, Study
from shoal.runs.curves import INK, MUTED

WHAT = {
    "held_out/area_per_update": "mean held-out pass@1",
    "per_round/reward/local": "reward of own rollouts",
}
LARGE = 3.0
"""A gain above 300 % leaves nothing to be seen of the others but on a logarithmic axis."""
AXES = {"start": "held-out pass@1 at the start", "nodes": "nodes"}


@dataclass(frozen=True)
class Point:
    """A regime: its x, and the gain in each figure. None: the control is too near 0 for a share."""

    regime: str
    x: float
    gains: dict[str, Interval | None]
    seeds: int


def points(results: Results, gain: Gain) -> list[Point]:
    """A point for each of its regimes that has both arms and an x, in its order."""
    found: list[Point] = []
    for regime in results.study.paired(gain):
        runs = results.runs.get(regime, {})
        if not {gain.treated, gain.control} <= runs.keys():
            continue
        figures = scores({arm: runs[arm] for arm in (gain.treated, gain.control)}, results.study.threshold)
        both = figures[gain.treated].keys() & figures[gain.control].keys()
        x = _x(results.study, gain, regime, [known(each, "held_out/start") for each in figures.values()])
        if x is None or not both:
            continue
        gains = {name: gain_of(figures, name, gain.treated, gain.control) for name in WHAT}
        found.append(Point(regime, x, gains, len(both)))
    return sorted(found, key=lambda point: point.x)


def draw_gains(gains: Mapping[str, tuple[Gain, Sequence[Point]]]) -> Picture | None:
    """All gains of a study in one figure, a column for each; None if there is nothing to draw."""
    drawn = {
        name: (gain, found)
        for name, (gain, found) in gains.items()
        if any(value for point in found for value in point.gains.values())
    }
    if not drawn:
        return None
    figure = drawing.blank(7.2 if len(drawn) == 1 else 4.8 * len(drawn), 5.6)
    panels = figure.subplots(2, len(drawn), sharex="col", squeeze=False)
    table: list[dict[str, Any]] = []
    missing: list[str] = []
    for number, (name, (gain, found)) in enumerate(drawn.items()):
        table += [{"gain of": name, **row} for row in _column(list(panels[:, number]), gain, found)]
        missing += [f"{p.regime} ({WHAT[what]})" for p in found for what, value in p.gains.items() if value is None]
    arms = dict.fromkeys((gain.treated, gain.control) for gain, _ in drawn.values())
    compared = " and ".join(f"{treated} gains over {control}" for treated, control in arms)
    caption = (
        f"What {compared}: interquartile means over seeds with paired 95 % bootstrap intervals; a point for "
        "each regime, moved aside where two would meet."
    )
    if missing:
        none = f"Not drawn, since the control has next to nothing there, or it was not measured: {', '.join(missing)}."
        caption = f"{caption} {none}"
    return Picture("gain", caption, figure, table)


def _column(panels: Sequence[Axes], gain: Gain, found: Sequence[Point]) -> list[dict[str, Any]]:
    """A panel for each figure, one below the other; the rows of the table."""
    positive = [point.x for point in found if point.x > 0]
    floor = min(positive, default=1e-3) / 4  # where a start of 0 is drawn on an axis that has no 0
    at = [p.x if p.x > 0 else floor for p in found]
    where = dict(zip([p.regime for p in found], apart(at), strict=True))
    values = [value for point in found for value in point.gains.values() if value]
    times = max(value.value for value in values) > LARGE and min(value.low for value in values) > -1
    table: list[dict[str, Any]] = []
    for axes, (name, words), mark in zip(panels, WHAT.items(), "os", strict=True):
        ratio = f"{gain.treated} as a multiple of {gain.control}" if times else f"{gain.treated} over {gain.control}, %"
        drawing.dress(axes, "", "", f"{words}:\n{ratio}")
        for point in found:
            value = point.gains[name]
            table.append(
                {"figure": name, "regime": point.regime, "x": point.x, "seeds": point.seeds}
                | ({"gain": value.value, "low": value.low, "high": value.high} if value else {})
            )
            if value is not None:
                v, low, high = (1 + end if times else 100 * end for end in (value.value, value.low, value.high))
                spans = [[max(0.0, v - low)], [max(0.0, high - v)]]
                axes.errorbar(
                    where[point.regime], v, yerr=spans if point.seeds > 1 else None,
                    fmt=mark, color=INK, ecolor=MUTED, markersize=6, capsize=3, linewidth=1.2, zorder=3,
                )  # fmt: skip
                axes.annotate(
                    f"{v:.3g}×" if times else f"{v:+.2g}", (where[point.regime], v), xytext=(7, 5),
                    textcoords="offset points", fontsize=8, color=INK, parse_math=False, annotation_clip=False,
                )  # fmt: skip
        drawing.mark_empty(axes)
        if times:
            _as_times(axes)
        axes.axhline(1 if times else 0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    _logarithmic(panels[0], at, floor if len(positive) < len(found) else None, gain.along == "nodes")
    _name(panels[0], [(where[p.regime], p.regime) for p in found])
    panels[-1].set_xlabel(AXES[gain.along], fontsize=9.5, color=MUTED, parse_math=False)
    return table


def _as_times(axes: Axes) -> None:
    """A logarithmic axis of multiples."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.yaxis.set_minor_locator(NullLocator())


def apart(x: Sequence[float]) -> list[float]:
    """Where points at `x`, in order, are drawn on a logarithmic axis: neighbours at least a 22nd of it apart."""
    places = np.log(x)
    step = max(float(places[-1] - places[0]), 0.5) / 22
    for _ in range(200):
        for left in range(len(places) - 1):
            push = max(0.0, (step - (places[left + 1] - places[left])) / 2)
            places[left] -= push
            places[left + 1] += push
    return [float(value) for value in np.exp(places)]


def _x(study: Study, gain: Gain, regime: str, starts: list[dict[int, float]]) -> float | None:
    if gain.along == "start":
        values = [value for each in starts for value in each.values()]
        return interquartile_mean(values) if values else None
    cell = next(c for c in study.cells() if c.regime == regime and c.arm == gain.treated)
    return float(study.config(cell).swarm.nodes)


def _logarithmic(axes: Axes, x: Sequence[float], zero: float | None, each: bool) -> None:
    """A logarithmic axis with ticks that can be read at any span, or at `each` x; `zero` is where 0 is drawn."""
    axes.set_xscale("log")
    axes.set_xlim(min(x) / 1.6, max(x) * 1.6)
    wide = max(x) / min(x) > 30
    low = min(at for at in x if at != zero) if any(at != zero for at in x) else 0.0
    steps = (1, 3) if wide else (1, 2, 3, 5, 7)
    ticks = [m * 10.0**e for e in range(-7, 7) for m in steps]
    ticks = [tick for tick in ticks if max(min(x) / 1.6, low / 1.6 if zero else 0.0) <= tick <= max(x) * 1.6]
    names = {tick: f"{tick:g}" for tick in (x if each else ticks)} | ({zero: "0"} if zero else {})
    axes.set_xticks(sorted(names))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: names.get(value, f"{value:g}")))
    axes.xaxis.set_minor_locator(NullLocator())


def _name(axes: Axes, names: Sequence[tuple[float, str]]) -> None:
    """Regimes, over the panel, aslant so that neighbours do not meet."""
    for x, name in names:
        axes.annotate(
            name, (x, 1.02), xycoords=("data", "axes fraction"), rotation=45, fontsize=8.5, color=INK,
            ha="left", va="bottom", parse_math=False, annotation_clip=False,
        )  # fmt: skip
