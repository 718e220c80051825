"""The figures of a report: held-out pass@1 by updates and by compute, and gains.

for picture in pictures(read_results(folder), gains):
    save(picture, folder / "report")
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from shoal.runs.curves import INK, MUTED
from shoal_lab import drawing
from shoal_lab.contrasts import gain_of
from shoal_lab.drawing import Picture
from shoal_lab.measures import curves, flops, held_out
from shoal_lab.results import Results, RunResult, Runs, by_seed, cuts
from shoal_lab.statistics import interquartile_mean
from shoal_lab.study import Pair, Study, slug


def pictures(results: Results, gains: Mapping[str, pd.DataFrame]) -> Iterator[Picture]:
    """All figures, those about all regimes first. `gains`: `points` of each gain of the study."""
    study = results.study
    if (gain := draw_gains({name: (study.gains[name], found) for name, found in gains.items()})) is not None:
        yield gain
    for regime, runs in results.runs.items():
        yield held_out_curves(regime, runs, study)


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


WHAT = {
    "held_out/area_per_update": "mean held-out pass@1",
    "per_round/reward/local": "reward of own rollouts",
}
COLUMNS = ["figure", "regime", "x", "seeds", "value", "low", "high"]


def points(figures: Mapping[str, pd.DataFrame], regimes: Iterable[str], treated: str, control: str) -> pd.DataFrame:
    """What `treated` gains over `control`, as a share: a row for each of `WHAT` and each of `regimes` that has both
    arms and an x, by x. `figures`: the `scores` of each regime. NaN: the control is too near 0 for a share."""
    rows = []
    for regime in regimes:
        table = figures.get(regime)
        if table is None or not {treated, control} <= set(table.index.unique("arm")):
            continue
        starts = [by_seed(table, arm, "held_out/start") for arm in (treated, control)]
        seeds = len(starts[0].index.intersection(starts[1].index))
        known = pd.concat(starts).dropna()
        for name in WHAT if seeds and len(known) else ():
            found = gain_of(table, name, treated, control)
            point = {"figure": name, "regime": regime, "x": interquartile_mean(known), "seeds": seeds}
            rows.append(point | (asdict(found) if found else {}))
    return pd.DataFrame(rows, columns=COLUMNS).sort_values("x", kind="stable", ignore_index=True)


def draw_gains(gains: Mapping[str, tuple[Pair, pd.DataFrame]]) -> Picture | None:
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
        "each regime, in the order of held-out pass@1 at the start."
    )
    missing = table[table["value"].isna()]
    if len(missing):
        which = ", ".join(f"{row.regime} ({WHAT[row.figure]})" for row in missing.itertuples())
        caption += (
            " Not drawn, since it was not measured, or the control has next to nothing there (held-out pass@1 is read "
            f"above what answers get that ignore the question): {which}."
        )
    return Picture("gain", caption, figure, table.rename(columns={"value": "gain"}))


def _column(panels: Sequence[Axes], gain: Pair, found: pd.DataFrame) -> None:
    """A panel for each figure, one below the other, with a logarithmic axis: gains may differ a hundredfold."""
    places = found.drop_duplicates("regime").set_index("regime")["x"]
    for axes, (name, words), mark in zip(panels, WHAT.items(), "os", strict=True):
        drawing.dress(axes, "", "", f"{words}:\n{gain.treated} as a multiple of {gain.control}")
        rows = found[(found["figure"] == name) & found["value"].notna()]
        at, times = [places.index.get_loc(regime) for regime in rows["regime"]], 1 + rows[["value", "low", "high"]]
        spans = [times["value"] - times["low"], times["high"] - times["value"]]
        if len(rows):
            axes.errorbar(at, times["value"], yerr=spans, fmt=mark, color=INK, ecolor=MUTED, markersize=6, capsize=3)
            axes.set_yscale("log", nonpositive="clip")
            drawing.plain_log(axes.yaxis)
        for x, value in zip(at, times["value"], strict=True):
            axes.annotate(f"{value:.3g}×", (x, value), xytext=(7, 5), textcoords="offset points", fontsize=8, color=INK)
        drawing.mark_empty(axes)
        axes.axhline(1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    names = [f"{regime}\n{x:.3g}" for regime, x in places.items()]
    panels[-1].set_xticks(range(len(names)), names, parse_math=False)
    panels[-1].set_xlim(-0.5, len(names) - 0.5)
    panels[-1].set_xlabel("held-out pass@1 at the start", fontsize=9.5, color=MUTED, parse_math=False)
