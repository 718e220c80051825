"""The figure of a regime: held-out pass@1 by updates and by compute, saved as PNG, with its numbers as CSV.

    save(held_out_curves(regime, results.runs[regime], results.study), folder)      # NAME.png and NAME.csv

It can be read in black and white: arms differ by dashes and marks, not by colour alone.
"""

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image  # which matplotlib needs

from shoal.runs.curves import INK, MUTED
from shoal.runs.disk import write_atomically
from shoal_lab.measures import curves, flops, held_out
from shoal_lab.results import RunResult, Runs, cuts
from shoal_lab.statistics import iqm_interval
from shoal_lab.study import Study, slug

MOST_ARMS = 6
"""In one figure: more cannot be told apart."""
GRID_POINTS = 41
"""Along FLOPs, where every run has its evaluations at other numbers."""
TERA = 1e12
DPI = 150
WIDTH = 9.6
"""Inches."""
SHADES = 64
"""Colours of a PNG."""
RESAMPLES = 2000
"""For the band around a curve, which has many points."""
COLOURS = ("#000000", "#0b5394", "#c05a00", "#38a169", "#8e3a9d", "#b58900", "#5f6b76")
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (1.2, 1.4)), (0, (7, 2, 1.2, 2)), (0, (3, 1.5)))
MARKS = "osD^vPX*<>"


@dataclass(frozen=True)
class Picture:
    """A figure under the name of its files."""

    name: str
    caption: str
    figure: Figure
    table: pd.DataFrame
    """Its numbers in long format."""
    regime: str = ""


def save(picture: Picture, folder: Path) -> None:
    """Writes NAME.png and NAME.csv. The same picture gives the same files."""
    data, small = io.BytesIO(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # names may be in scripts that the font lacks
        picture.figure.savefig(data, format="png", dpi=DPI, metadata={"Software": None}, facecolor="white")
    # less than a third of the size, and the eye sees no difference
    Image.open(data).convert("RGB").quantize(SHADES, dither=Image.Dither.NONE).save(small, "png", dpi=(DPI, DPI))
    write_atomically(folder / f"{picture.name}.png", small.getvalue())
    numbers = picture.table.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_atomically(folder / f"{picture.name}.csv", numbers.encode())


def held_out_curves(regime: str, runs: Runs, study: Study) -> Picture:
    """Held-out pass@1 of each arm with intervals over seeds; left by updates, right by FLOPs of a node. The arms of
    contrasts come first, if there are too many."""
    pairs = [(each.control, each.treated) for each in study.contrasts.values() if regime in study.paired(each)]
    first = [arm for pair in pairs if set(pair) <= runs.keys() for arm in pair]
    shown = list(dict.fromkeys([*first, *runs]))[:MOST_ARMS]
    arms = [arm for arm in study.arms if arm in shown]
    end = cuts(runs)[1] if len(runs) > 1 else np.nan
    table = pd.concat(
        [
            band(along(list(seeds.values()))).assign(along=unit, arm=arm)
            for unit, along in (("updates", _by_round), ("flops", _by_flops))
            for arm, seeds in runs.items()
        ],
        ignore_index=True,
    )
    figure = Figure(figsize=(WIDTH, 4.0), dpi=DPI, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    by_flops = table[table["along"] == "flops"].assign(x=table["x"] / TERA)
    draw(left, table[table["along"] == "updates"], arms, "by updates", "round (a node makes an update in each)")
    words = "by compute" + (" (dotted line: where areas end)" if end > 0 else "")
    draw(right, by_flops, arms, words, "teraFLOPs of a node, answering and learning")
    left.set_ylabel("held-out pass@1", fontsize=9.5, color=MUTED)
    for axes in (left, right):  # once both are drawn, as they share an axis
        axes.set(xlim=(0, None), ylim=(0, None))
    if end > 0:
        right.axvline(end / TERA, color=MUTED, linewidth=0.9, linestyle=":", zorder=1)
    legend(figure, arms)
    caption = (
        "Held-out pass@1, mean over nodes: interquartile mean over seeds with its 95 % interval, if there are several. "
        "Left by updates, right by the FLOPs of a node, answering and learning, as far as every run of an arm has come."
    )
    if hidden := [arm for arm in runs if arm not in arms]:
        caption += f" Not drawn, but in the table and the CSV: {', '.join(hidden)}."
    numbers = table.rename(columns={"value": "pass@1"})[["along", "arm", "x", "pass@1", "low", "high"]]
    return Picture(f"held_out_{slug(regime)}", caption, figure, numbers, regime)


def _by_round(runs: list[RunResult]) -> pd.DataFrame:
    """The mean over nodes of each run (a column) at the rounds at which every run was evaluated."""
    return pd.concat([held_out(run.own).mean(axis=1) for run in runs], axis=1, join="inner")


def _by_flops(runs: list[RunResult]) -> pd.DataFrame:
    """The same along FLOPs of a node, up to the least that any node of any run computed."""
    lines: list[list[pd.Series]] = []
    for run in runs:
        spent = flops(run.own)
        every = ((spent[node], curve) for node, curve in curves(held_out(run.own)).items())
        lines.append([curve.set_axis(done.reindex(curve.index)) for done, curve in every])
    ends = [curve.index[-1] if len(curve) else 0.0 for nodes in lines for curve in nodes]
    if not ends or not min(ends) > 0 or not all(lines):  # NaN: where FLOPs are not known
        return pd.DataFrame()
    grid = np.linspace(0, min(ends), GRID_POINTS)
    means = [np.mean([np.interp(grid, curve.index, curve) for curve in nodes], axis=0) for nodes in lines]
    return pd.DataFrame(np.transpose(means), index=grid)


def style(place: int) -> dict[str, Any]:
    """How the arm at `place` of the study is drawn."""
    return {
        "color": COLOURS[place % len(COLOURS)],
        "linestyle": DASHES[place % len(DASHES)],
        "marker": MARKS[place % len(MARKS)],
    }


def draw(axes: Axes, table: pd.DataFrame, arms: Sequence[str], title: str, x: str) -> None:
    """One panel: the curve of each of `arms`, with about eight marks, and its band. `table` has a row for each point,
    with columns arm, x, value, low and high."""
    axes.set_title(title, loc="left", fontsize=10.5, color=INK, parse_math=False)
    axes.set_xlabel(x, fontsize=9.5, color=MUTED)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8.5, colors=MUTED, length=3)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    for place, arm in enumerate(arms):
        rows = table[table["arm"] == arm]
        if rows.empty:
            continue
        look = style(place)
        axes.fill_between(rows["x"], rows["low"], rows["high"], color=look["color"], alpha=0.1, linewidth=0)
        step = max(1, len(rows) // 8)
        every = (place * step // 4 % step, step)  # each arm's marks at other places
        axes.plot(rows["x"], rows["value"], linewidth=1.8, markersize=4.5, markevery=every, **look)
    if not axes.lines:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color=MUTED, fontsize=9.5)


def legend(figure: Figure, arms: Sequence[str]) -> None:
    """The arms above all panels, with the marks and dashes of each."""
    handles = [Line2D([], [], linewidth=1.8, markersize=5, **style(place)) for place in range(len(arms))]
    columns = max(1, min(len(arms), int(WIDTH / (0.6 + 0.09 * max(map(len, arms), default=1)))))
    words = figure.legend(
        handles, arms, loc="outside upper left", ncols=columns, frameon=False, fontsize=9.5, handlelength=3.4
    )
    for text in words.get_texts():
        text.set_parse_math(False)


def band(values: pd.DataFrame) -> pd.DataFrame:
    """Of a row for each x and a column for each run: x, the interquartile mean over runs as `value`, and the ends of
    its 95 % interval as `low` and `high`, which for one run are the value."""
    found = [iqm_interval(row, resamples=RESAMPLES) for row in values.to_numpy()]
    ends = pd.DataFrame(found, index=values.index, columns=["value", "low", "high"], dtype=float)
    return ends.rename_axis("x").reset_index()
