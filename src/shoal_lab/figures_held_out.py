"""The figure of held-out pass@1 by arm: along updates, and along compute.

held_out_curves("main", results.runs["main"], results.study)        # -> Picture
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from shoal.runs.curves import MUTED
from shoal_lab import drawing
from shoal_lab.drawing import Picture, joined
from shoal_lab.measures import curves, flops, held_out
from shoal_lab.results import RunResult, Runs, cuts
from shoal_lab.study import Study, slug

GRID_POINTS = 41
"""Along FLOPs, where every run has its evaluations at other numbers."""
APART = 8
"""If arms differ by more than this factor in FLOPs, their axis is logarithmic: else the cheap ones are a stroke."""
TERA = 1e12


def held_out_curves(regime: str, runs: Runs, study: Study) -> Picture:
    """Held-out pass@1 of each arm with intervals over seeds; left by updates, right by FLOPs of a node."""
    arms, note = drawing.shown_arms(regime, runs, study)
    figure = drawing.blank(9.6, 4.0)
    left, right = figure.subplots(1, 2, sharey=True)
    end = cuts(runs)[1] if len(runs) > 1 else np.nan
    drawing.dress(left, "by updates", "round (a node makes an update in each)", "held-out pass@1")
    drawing.dress(
        right,
        "by compute" + (" (dotted line: where areas end)" if end > 0 else ""),
        "teraFLOPs of a node, answering and learning",
    )
    tables = []
    for axes, unit, along, scale in ((left, "updates", _by_round, 1), (right, "flops", _by_flops, TERA)):
        parts = []
        for arm, by_seed in runs.items():
            values = along(list(by_seed.values()))
            if not values.empty:
                parts.append(drawing.band(values).rename_axis("x").reset_index().assign(arm=arm, along=unit))
        tables.append(joined(parts))
        drawing.draw_arms(axes, tables[-1].assign(x=tables[-1]["x"] / scale), arms)
        drawing.mark_empty(axes)
    drawn = tables[0][tables[0]["arm"].isin(arms)]
    drawing.rounds_axis(left, drawn["x"].max() if len(drawn) else 1)
    left.set_ylim(bottom=0)
    ends = tables[1][tables[1]["arm"].isin(arms)].groupby("arm")["x"].max()
    wide = len(ends) > 1 and ends.max() > APART * ends.min()
    if wide:  # 0 has no place on it
        right.set_xscale("log", nonpositive="mask")
        right.set_xlim(ends.min() / TERA / 10, ends.max() / TERA * 1.1)
        drawing.plain_log(right.xaxis)
    else:
        right.set_xlim(left=0)
        right.xaxis.set_major_locator(MaxNLocator(nbins=5))
    if end > 0:
        right.axvline(end / TERA, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
    drawing.legend(figure, arms, 9.6)
    caption = (
        "Held-out pass@1, mean over nodes: interquartile mean over seeds with its 95 % interval, if there are several. "
        "Left by updates, right by the FLOPs of a node, answering and learning, as far as every run of an arm has come"
        + (f", on a logarithmic axis since arms differ {ends.max() / ends.min():.0f}-fold." if wide else ".")
    )
    table = joined(tables).rename(columns={"value": "pass@1"})
    table = table.reindex(columns=["along", "arm", "x", "pass@1", "low", "high"])
    return Picture(f"held_out_{slug(regime)}", caption + note, figure, table, regime)


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
    if not ends or not min(ends) or not all(lines):
        return pd.DataFrame()
    grid = np.linspace(0, min(ends), GRID_POINTS)
    means = [np.mean([np.interp(grid, curve.index, curve) for curve in nodes], axis=0) for nodes in lines]
    return pd.DataFrame(np.transpose(means), index=grid)
