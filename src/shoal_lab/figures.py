"""The figure of a regime: held-out pass@1 by updates and by compute.

save(held_out_curves(regime, results.runs[regime], results.study), folder / "report")
"""

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from shoal.runs.curves import MUTED
from shoal_lab import drawing
from shoal_lab.drawing import Picture
from shoal_lab.measures import curves, flops, held_out
from shoal_lab.results import RunResult, Runs, cuts
from shoal_lab.study import Study, slug

MOST_ARMS = 6
"""In one figure: more cannot be told apart."""
GRID_POINTS = 41
"""Along FLOPs, where every run has its evaluations at other numbers."""
TERA = 1e12


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
            drawing.band(along(list(seeds.values()))).assign(along=unit, arm=arm)
            for unit, along in (("updates", _by_round), ("flops", _by_flops))
            for arm, seeds in runs.items()
        ],
        ignore_index=True,
    )
    figure = drawing.blank(9.6, 4.0)
    left, right = figure.subplots(1, 2, sharey=True)
    drawing.dress(left, "by updates", "round (a node makes an update in each)", "held-out pass@1")
    words = "by compute" + (" (dotted line: where areas end)" if end > 0 else "")
    drawing.dress(right, words, "teraFLOPs of a node, answering and learning")
    drawing.draw_arms(left, table[table["along"] == "updates"], arms)
    drawing.draw_arms(right, table[table["along"] == "flops"].assign(x=table["x"] / TERA), arms)
    for axes in (left, right):
        drawing.mark_empty(axes)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    if end > 0:
        right.axvline(end / TERA, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
    drawing.legend(figure, arms, 9.6)
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
