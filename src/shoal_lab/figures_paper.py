"""Figures 1 to 3 of the paper (arXiv 2509.08721): reward by node, smoothed, and cumulative.

by_node("main", results.runs["main"], results.study)        # -> Picture; moving and against likewise
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from shoal.runs.curves import INK, MUTED, NODE
from shoal_lab import drawing
from shoal_lab.drawing import Picture, joined
from shoal_lab.measures import curves, series
from shoal_lab.results import RunResult, Runs, each_run
from shoal_lab.statistics import holm, sign_flip_test
from shoal_lab.study import Study, slug

POINTS = 20
"""Rounds at which swarm and isolated are tested."""
BANDS = 5
"""More arms than this are drawn without bands."""
PANELS = (("reward/local", "honest: own unfiltered rollouts"), ("reward/trained_on", "trained on: rises by the filter"))


def by_node(regime: str, runs: Runs, study: Study) -> Picture:
    """The paper's figure 1: each node's local reward by round, a panel for each arm."""
    arms, note = drawing.shown_arms(regime, runs, study)
    first = {arm: next(iter(by_seed.items())) for arm, by_seed in runs.items()}
    columns = len(arms) if len(arms) <= 4 else 3
    lines = -(-len(arms) // columns)
    figure = drawing.blank(max(5.0, 2.9 * columns), 0.5 + 2.5 * lines)
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    parts = []
    for arm, (seed, run) in first.items():
        rewards = series(run.own, "reward/local")
        for node, curve in curves(rewards).items():
            rows = {"arm": arm, "seed": seed, "node": node, "round": curve.index, "reward": curve}
            parts.append(pd.DataFrame(rows))
        if arm in arms:
            axes = panels.flat[list(arms).index(arm)]
            drawing.dress(axes, arm)
            for curve in curves(rewards).values():
                axes.plot(curve.index, curve, color=NODE, linewidth=0.6, zorder=2)
            if len(rewards):
                axes.plot(rewards.index, rewards.mean(axis=1), color=INK, linewidth=1.0, zorder=3)
            drawing.rounds_axis(axes, run.rounds)
    panels[0, 0].set_ylim(bottom=0)  # after all are drawn, as the panels share it
    for axes in panels.flat[: len(arms)] if not parts else ():
        drawing.mark_empty(axes)
    for place, axes in enumerate(panels.flat[len(arms) :], len(arms)):
        axes.set_visible(False)
        panels.flat[place - columns].tick_params(labelbottom=True)  # the lowest of its column
    for axes in panels[:, 0]:
        axes.set_ylabel("local reward")
    figure.supxlabel("round", fontsize=9.5, color=MUTED)
    seeds = {seed for seed, _ in first.values()}
    which = f"seed {seeds.pop()}" if len(seeds) == 1 else "the first seed of each arm"
    caption = (
        f"Local reward of each node, round by round (grey), and their mean (black); {which}. After the paper's Fig. 1."
    )
    return Picture(f"fig1_{slug(regime)}", caption + note, figure, joined(parts), regime)


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
        parts = [_smoothed(each_run({arm: by_seed}), key, window).assign(arm=arm) for arm, by_seed in runs.items()]
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
