"""What one arm gains over another, regime by regime, against held-out pass@1 at the start.

draw_gains({"sparsity": (gain, points(results, gain))})
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from shoal.runs.curves import INK, MUTED
from shoal_lab import drawing
from shoal_lab.drawing import Picture
from shoal_lab.report_contrasts import gain_of
from shoal_lab.results import Results
from shoal_lab.statistics import interquartile_mean
from shoal_lab.study import Gain

WHAT = {
    "held_out/area_per_update": "mean held-out pass@1",
    "per_round/reward/local": "reward of own rollouts",
}
LARGE = 3.0
"""A gain above 300 % leaves nothing to be seen of the others but on a logarithmic axis."""
COLUMNS = ["figure", "regime", "x", "seeds", "value", "low", "high"]


def points(results: Results, gain: Gain) -> pd.DataFrame:
    """A row for each of `WHAT` and each of the gain's regimes that has both arms and an x, by x. A gain is a share;
    NaN: the control is too near 0 for one."""
    rows = []
    for regime in results.study.paired(gain):
        runs = results.runs.get(regime, {})
        if not {gain.treated, gain.control} <= runs.keys():
            continue
        figures = results.figures[regime]
        seeds = len(runs[gain.treated].keys() & runs[gain.control].keys())
        starts = figures.loc[[gain.treated, gain.control], "held_out/start"].dropna()
        x = interquartile_mean(starts) if len(starts) else math.nan
        for name in WHAT if seeds and not math.isnan(x) else ():
            found = gain_of(figures, name, gain.treated, gain.control)
            point = {"figure": name, "regime": regime, "x": x, "seeds": seeds}
            rows.append(point | (asdict(found) if found else {}))
    return pd.DataFrame(rows, columns=COLUMNS).sort_values("x", kind="stable", ignore_index=True)


def draw_gains(gains: Mapping[str, tuple[Gain, pd.DataFrame]]) -> Picture | None:
    """All gains of a study in one figure, a column for each; None if there is nothing to draw."""
    drawn = {name: (gain, found) for name, (gain, found) in gains.items() if found["value"].notna().any()}
    if not drawn:
        return None
    figure = drawing.blank(7.2 if len(drawn) == 1 else 4.8 * len(drawn), 5.6)
    panels = figure.subplots(2, len(drawn), sharex="col", squeeze=False)
    for number, (gain, found) in enumerate(drawn.values()):
        _column(list(panels[:, number]), gain, found)
    table = pd.concat({name: found for name, (_, found) in drawn.items()}, names=["gain of"]).reset_index("gain of")
    arms = dict.fromkeys((gain.treated, gain.control) for gain, _ in drawn.values())
    compared = " and ".join(f"{treated} gains over {control}" for treated, control in arms)
    caption = (
        f"What {compared}: interquartile means over seeds with paired 95 % bootstrap intervals; a point for "
        "each regime, moved aside where two would meet."
    )
    missing = table[table["value"].isna()]
    if len(missing):
        which = ", ".join(f"{row.regime} ({WHAT[row.figure]})" for row in missing.itertuples())
        caption += (
            " Not drawn, since it was not measured, or the control has next to nothing there (held-out pass@1 is read "
            f"above what answers get that ignore the question): {which}."
        )
    return Picture("gain", caption, figure, table.rename(columns={"value": "gain"}))


def _column(panels: Sequence[Axes], gain: Gain, found: pd.DataFrame) -> None:
    """A panel for each figure, one below the other."""
    positive = found["x"][found["x"] > 0]
    floor = (positive.min() if len(positive) else 1e-3) / 4  # where a start of 0 is drawn on an axis that has no 0
    places = found.drop_duplicates("regime").set_index("regime")["x"]
    places = places.where(places > 0, floor)
    at = dict(zip(places.index, apart(list(places)), strict=True))
    times = found["value"].max() > LARGE and found["low"].min() > -1
    ratio = f"{gain.treated} as a multiple of {gain.control}" if times else f"{gain.treated} over {gain.control}, %"
    for axes, (name, words), mark in zip(panels, WHAT.items(), "os", strict=True):
        drawing.dress(axes, "", "", f"{words}:\n{ratio}")
        for row in found[(found["figure"] == name) & found["value"].notna()].itertuples():
            value, low, high = (1 + end if times else 100 * end for end in (row.value, row.low, row.high))
            spans = [[max(0.0, value - low)], [max(0.0, high - value)]]
            axes.errorbar(
                at[row.regime], value, yerr=spans if row.seeds > 1 else None,
                fmt=mark, color=INK, ecolor=MUTED, markersize=6, capsize=3, linewidth=1.2, zorder=3,
            )  # fmt: skip
            axes.annotate(
                f"{value:.3g}×" if times else f"{value:+.3g}", (at[row.regime], value), xytext=(7, 5),
                textcoords="offset points", fontsize=8, color=INK, parse_math=False, annotation_clip=False,
            )  # fmt: skip
        if not axes.lines:
            axes.set_yticks([])
            drawing.mark_empty(axes, "nothing to draw: see below")
        elif times:
            axes.set_yscale("log")
            drawing.plain_log(axes.yaxis, "×")
        axes.axhline(1 if times else 0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    _logarithmic(panels[0], list(places), floor if (found["x"] <= 0).any() else None)
    for regime, x in at.items():  # over the panel, aslant so that neighbours do not meet
        panels[0].annotate(
            regime, (x, 1.02), xycoords=("data", "axes fraction"), rotation=45, fontsize=8.5, color=INK,
            ha="left", va="bottom", parse_math=False, annotation_clip=False,
        )  # fmt: skip
    panels[-1].set_xlabel("held-out pass@1 at the start", fontsize=9.5, color=MUTED, parse_math=False)


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


def _logarithmic(axes: Axes, x: Sequence[float], zero: float | None) -> None:
    """A logarithmic axis with ticks that can be read at any span; `zero` is where 0 is drawn."""
    axes.set_xscale("log")
    axes.set_xlim(min(x) / 1.6, max(x) * 1.6)
    low = min((at for at in x if at != zero), default=0.0)
    ticks = [m * 10.0**e for e in range(-7, 7) for m in ((1, 3) if max(x) / min(x) > 30 else (1, 2, 3, 5, 7))]
    ticks = [tick for tick in ticks if (low if zero else min(x)) / 1.6 <= tick <= max(x) * 1.6]
    names = {tick: f"{tick:g}" for tick in ticks} | ({zero: "0"} if zero else {})
    axes.set_xticks(sorted(names))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: names.get(value, f"{value:g}")))
    axes.xaxis.set_minor_locator(NullLocator())
