"""The figure of a regime: held-out pass@1 by updates and by compute, as PNG, with its numbers as CSV.

    name, caption = draw_curves(regime, results.runs[regime], results.study, folder)      # NAME.png and NAME.csv

It can be read in black and white: arms differ by dashes and marks, not by colour alone.
"""

import io
import warnings
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from PIL import Image  # which matplotlib needs

from shoal.runs.disk import write_atomically
from shoal_lab.measures import curves, flops, held_out
from shoal_lab.results import RunResult, Runs, cuts
from shoal_lab.statistics import iqm_interval
from shoal_lab.study import Study, slug

MOST_ARMS: Final = 6
"""In one figure: more cannot be told apart."""
GRID_POINTS: Final = 41
"""Along FLOPs, where every run has its evaluations at other numbers."""
TERA: Final = 1e12
DPI: Final = 150
RESAMPLES: Final = 2000
"""For the band around a curve, which has many points."""
INK, MUTED = "#222222", "#6b6b6b"
COLOURS: Final = ("#000000", "#0b5394", "#c05a00", "#38a169", "#8e3a9d", "#b58900")
DASHES: Final[tuple[Any, ...]] = ("-", (0, (6, 2)), (0, (1.2, 1.4)), (0, (7, 2, 1.2, 2)), (0, (3, 1.5)))
MARKS: Final = "osD^vP"
CAPTION: Final = (
    "Held-out pass@1, mean over nodes: interquartile mean over seeds with its 95 % interval, if there are several. "
    "Left by updates, right by the FLOPs of a node, answering and learning, as far as every run of an arm has come."
)


def draw_curves(regime: str, runs: Runs, study: Study, folder: Path) -> tuple[str, str]:
    """Writes NAME.png and NAME.csv into `folder`, and returns NAME and a caption. The same runs give the same files.
    The arms of contrasts come first, if there are too many."""
    pairs = [(each.control, each.treated) for each in study.contrasts.values() if regime in study.paired(each)]
    first = [arm for pair in pairs if set(pair) <= runs.keys() for arm in pair]
    shown = list(dict.fromkeys([*first, *runs]))[:MOST_ARMS]
    arms, hidden = [arm for arm in study.arms if arm in shown], [arm for arm in runs if arm not in shown]
    units = {"updates": _by_round, "flops": _by_flops}
    bands = {(unit, arm): _band(along(list(runs[arm].values()))) for unit, along in units.items() for arm in runs}
    table = pd.concat(bands, names=["along", "arm"]).reset_index(["along", "arm"])
    numbers = table.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    name = f"held_out_{slug(regime)}"
    write_atomically(folder / f"{name}.csv", numbers.encode())
    end = cuts(runs)[1] if len(runs) > 1 else np.nan
    write_atomically(folder / f"{name}.png", _picture({key: bands[key] for key in bands if key[1] in arms}, arms, end))
    return name, CAPTION + (f" Not drawn, but in the table and the CSV: {', '.join(hidden)}." if hidden else "")


def _picture(bands: dict[tuple[str, str], pd.DataFrame], arms: list[str], end: float) -> bytes:
    figure = Figure(figsize=(9.6, 4.0), dpi=DPI, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.set_title("by updates", loc="left", fontsize=10.5, color=INK)
    right.set_title("by compute" + (" (dotted line: where areas end)" if end > 0 else ""), loc="left", fontsize=10.5)
    left.set_ylabel("held-out pass@1", color=MUTED)
    left.set_xlabel("round (a node makes an update in each)", color=MUTED)
    right.set_xlabel("teraFLOPs of a node, answering and learning", color=MUTED)
    for (unit, arm), rows in bands.items():
        if rows.empty:
            continue
        axes, place = left if unit == "updates" else right, arms.index(arm)
        x = rows["x"] / (TERA if unit == "flops" else 1)
        look = {"color": COLOURS[place], "linestyle": DASHES[place % len(DASHES)], "marker": MARKS[place]}
        step = max(1, len(rows) // 8)
        marked = (place * step // 4 % step, step)  # each arm's marks at other places
        axes.fill_between(x, rows["low"], rows["high"], color=COLOURS[place], alpha=0.1, linewidth=0)
        axes.plot(x, rows["pass@1"], label=arm if axes is left else None, markersize=4.5, markevery=marked, **look)
    for axes in (left, right):  # once both are drawn, as they share an axis
        axes.set(xlim=(0, None), ylim=(0, None))
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8.5, colors=MUTED, length=3)
        axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    if end > 0:
        right.axvline(end / TERA, color=MUTED, linewidth=0.9, linestyle=":")
    columns = max(1, min(len(arms), int(9.6 / (0.6 + 0.09 * max(map(len, arms), default=1)))))
    legend = figure.legend(
        handles=list(left.lines), loc="outside upper left", ncols=columns, frameon=False, fontsize=9.5, handlelength=3.4
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    data, small = io.BytesIO(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # names may be in scripts that the font lacks
        figure.savefig(data, format="png", dpi=DPI, metadata={"Software": None}, facecolor="white")
    # with 64 colours less than a third of the size, and the eye sees no difference
    Image.open(data).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(small, "png", dpi=(DPI, DPI))
    return small.getvalue()


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


def _band(values: pd.DataFrame) -> pd.DataFrame:
    """Of a row for each x and a column for each run: x, the interquartile mean over runs, and the ends of its 95 %
    interval, which for one run are the value."""
    found = [astuple(iqm_interval(row, resamples=RESAMPLES)) for row in values.to_numpy()]
    ends = pd.DataFrame(found, index=values.index, columns=["pass@1", "low", "high"], dtype=float)
    return ends.rename_axis("x").reset_index()
