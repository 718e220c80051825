"""The figures of a report: those of the paper (arXiv 2509.08721), held-out pass@1, and gains.

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
from shoal_lab.drawing import Picture, joined
from shoal_lab.measures import curves, flops, held_out, series
from shoal_lab.results import Results, RunResult, Runs, by_seed, cuts, each_run
from shoal_lab.statistics import holm, interquartile_mean, sign_flip_test
from shoal_lab.study import Gain, Study, slug


def pictures(results: Results, gains: Mapping[str, pd.DataFrame]) -> Iterator[Picture]:
    """All figures, those about all regimes first. `gains`: `points` of each gain of the study."""
    study = results.study
    drawn = [draw_gains({name: (study.gains[name], found) for name, found in gains.items()})]
    for regime, runs in results.runs.items():
        drawn += [draw(regime, runs, study) for draw in (held_out_curves, moving, against)]
    return (picture for picture in drawn if picture is not None)


POINTS = 20
"""Rounds at which swarm and isolated are tested."""
BANDS = 5
"""More arms than this are drawn without bands."""
PANELS = (("reward/local", "honest: own unfiltered rollouts"), ("reward/trained_on", "trained on: rises by the filter"))


def moving(regime: str, runs: Runs, study: Study) -> Picture:
    """The paper's figure 2: the mean over nodes, smoothed, with the band from the lowest node to the highest."""
    arms, note = drawing.shown_arms(regime, runs, study)
    last = max(run.rounds for run in each_run(runs))
    window = drawing.window_of(last)
    figure = drawing.blank(9.6, 4.0)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    tables = []
    for axes, (key, words) in zip(panels, PANELS, strict=True):
        drawing.dress(axes, words, "round", "mean reward of a round" if axes is panels[0] else "")
        parts = [_smoothed(each_run({arm: seeds}), key, window).assign(arm=arm) for arm, seeds in runs.items()]
        tables.append(joined(parts).assign(reward=key))
        drawing.draw_arms(axes, tables[-1], arms, bands=len(arms) <= BANDS)
        drawing.rounds_axis(axes, last)
        drawing.mark_empty(axes)
    panels[0].set_ylim(bottom=0)
    drawing.legend(figure, arms, 9.6)
    shown = "band: from the lowest node to the highest, mean over seeds"
    if len(arms) > BANDS:
        shown = "without the bands, of which there are too many: the numbers have them"
    caption = (
        f"Reward by round: moving average of {window} round{'s' * (window > 1)} (where there are so many before), "
        f"mean over nodes and seeds; {shown}. Left the honest "
        "reward, right that over the training set, which rises by the filter alone. After the paper's Fig. 2."
    )
    table = joined(tables).rename(columns={"x": "round", "value": "mean"})
    columns = ["reward", "arm", "round", "mean", "low", "high"]
    return Picture(f"fig2_{slug(regime)}", caption + note, figure, table.reindex(columns=columns), regime)


def _smoothed(runs: Iterable[RunResult], key: str, window: int) -> pd.DataFrame:
    """By round: the mean over nodes and seeds; the lowest and the highest node, each a mean over seeds."""
    parts = []
    for run in runs:
        nodes = curves(series(run.own, key))
        smooth = pd.DataFrame({node: curve.rolling(window).mean() for node, curve in nodes.items()})
        ends = {"value": smooth.mean(axis=1), "low": smooth.min(axis=1), "high": smooth.max(axis=1)}
        parts.append(pd.DataFrame(ends).rename_axis("x"))
    return pd.concat(parts).groupby("x").mean().dropna().reset_index()


def pair_of(study: Study, regime: str, runs: Runs) -> tuple[str, str] | None:
    """Swarm and isolated: the first contrast made in the regime, or 4/4 and 8/0."""
    named = [(c.treated, c.control) for c in study.contrasts.values() if regime in study.paired(c)]
    return next((pair for pair in [*named, ("4/4", "8/0")] if set(pair) <= runs.keys() and len(set(pair)) == 2), None)


def against(regime: str, runs: Runs, study: Study) -> Picture | None:
    """The paper's figure 3: cumulative reward of two arms, and the p of their difference."""
    pair = pair_of(study, regime, runs)
    seeds = sorted(runs[pair[0]].keys() & runs[pair[1]].keys()) if pair else []
    if pair is None or not all(len(series(runs[arm][seed].own, "reward/local")) for arm in pair for seed in seeds):
        return None
    if not seeds:
        return None
    last = min(runs[arm][seed].rounds for arm in pair for seed in seeds)
    sums = {arm: pd.DataFrame({seed: _cumulative(runs[arm][seed], last) for seed in seeds}) for arm in pair}
    at = sorted({max(1, round(last * step / POINTS)) for step in range(1, POINTS + 1)})
    tests = {str(t): sign_flip_test((sums[pair[0]] - sums[pair[1]]).loc[t]) for t in at}
    adjusted_p = np.array(list(holm({t: test.p for t, test in tests.items()}).values()))
    smallest = max(holm({t: test.smallest_p for t, test in tests.items()}).values(), default=1.0)

    figure = drawing.blank(6.4, 5.0)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1.3])
    drawing.dress(top, "", "", "cumulative local reward\nof a node")
    places, _ = drawing.shown_arms(regime, runs, study)
    arms = {arm: places.get(arm, len(places) + place) for place, arm in enumerate(pair)}
    parts = [
        drawing.band(sums[arm].loc[at]).rename_axis("x").reset_index().assign(arm=arm, adjusted_p=adjusted_p)
        for arm in arms
    ]
    table = joined(parts)
    start = pd.DataFrame([{"arm": arm, "x": 0, "value": 0.0, "low": 0.0, "high": 0.0} for arm in arms])
    drawing.draw_arms(top, pd.concat([start, table]), arms)
    unsure = table[table["adjusted_p"] > study.alpha]
    top.plot(unsure["x"], unsure["value"], "x", color=MUTED, markersize=6, zorder=9)
    top.set_ylim(bottom=0)
    drawing.dress(bottom, "", "round", "adjusted p")
    bottom.plot(at, adjusted_p, color=INK, linewidth=1, marker=".", markersize=5, clip_on=False)
    bottom.axhline(study.alpha, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    bottom.annotate(
        f"{study.alpha:g}", (1.01, study.alpha), xycoords=("axes fraction", "data"), fontsize=8.5, va="center"
    )
    bottom.set_yscale("log")
    drawing.plain_log(bottom.yaxis)
    bottom.set_ylim(min(study.alpha, *adjusted_p) / 2, 1.2)
    drawing.rounds_axis(top, last)
    drawing.legend(figure, arms, 6.4)
    caption = (
        f"{pair[0]} against {pair[1]}: cumulative local reward, mean over nodes; interquartile mean and 95 % interval "
        f"over {len(seeds)} seed{'s' * (len(seeds) > 1)}. Crosses: adjusted p above {study.alpha:g} (paired sign flips "
        f"of whole runs, Holm over the {len(at)} rounds tested; the smallest that could come out at all of them is "
        f"{smallest:.2g}). After the paper's Fig. 3."
    )
    table = table.rename(columns={"x": "round", "value": "cumulative"})
    table = table[["arm", "round", "cumulative", "low", "high", "adjusted_p"]]
    return Picture(f"fig3_{slug(regime)}", caption, figure, table, regime)


def _cumulative(run: RunResult, last: int) -> pd.Series:
    """The sum of rewards up to each round, from round 0, mean over the nodes that count."""
    gained = series(run.own, "reward/local").sum(axis=1).reindex(range(last + 1), fill_value=0.0)
    return gained.cumsum() / max(1, len(run.nodes))


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
        for arm, seeds in runs.items():
            values = along(list(seeds.values()))
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


WHAT = {
    "held_out/area_per_update": "mean held-out pass@1",
    "per_round/reward/local": "reward of own rollouts",
}
LARGE = 3.0
"""A gain above 300 % leaves nothing to be seen of the others but on a logarithmic axis."""
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


def _column(panels: Sequence[Axes], gain: Gain, found: pd.DataFrame) -> None:
    """A panel for each figure, one below the other."""
    places = found.drop_duplicates("regime").set_index("regime")["x"]
    at = {regime: place for place, regime in enumerate(places.index)}
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
    names = [f"{regime}\n{x:.3g}" for regime, x in places.items()]
    panels[-1].set_xticks(range(len(names)), names, parse_math=False)
    panels[-1].set_xlim(-0.5, len(names) - 0.5)
    panels[-1].set_xlabel("held-out pass@1 at the start", fontsize=9.5, color=MUTED, parse_math=False)
