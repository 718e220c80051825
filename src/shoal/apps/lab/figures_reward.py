"""Figures after those of the paper (arXiv 2509.08721): reward by node, its moving average, swarm against isolated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

import numpy as np

from shoal.apps.lab import drawing
from shoal.apps.lab.drawing import Picture
from shoal.apps.lab.intervals import Array
from shoal.apps.lab.measures import series
from shoal.apps.lab.permutation import holm, sign_flip_test
from shoal.apps.lab.results import RunResult, Runs
from shoal.apps.lab.study import Study, slug
from shoal.runs.curves import INK, MUTED, NODE, mean_over_nodes

POINTS = 20
"""Rounds at which swarm and isolated are tested."""
BANDS = 5
"""More arms than this are drawn without bands."""
PANELS = (("reward/local", "honest: own unfiltered rollouts"), ("reward/trained_on", "trained on: rises by the filter"))


def by_node(regime: str, runs: Runs, study: Study) -> Picture:
    """The paper's figure 1: each node's local reward by round, a panel for each arm."""
    arms, note = drawing.shown_arms(runs, study)
    columns = min(4, len(arms))
    lines = -(-len(arms) // columns)
    figure = drawing.blank(max(5.0, 2.9 * columns), 0.5 + 2.5 * lines)
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for axes, arm in zip(panels.flat, arms, strict=False):
        run = _first(runs[arm])[1]
        nodes = series(run.own, "reward/local")
        drawing.dress(axes, arm)
        for curve in nodes.values():
            axes.plot(list(curve), list(curve.values()), color=NODE, linewidth=0.6, zorder=2)
        mean = mean_over_nodes(nodes)
        if mean:
            axes.plot(list(mean), list(mean.values()), color=INK, linewidth=1.0, zorder=3)
        drawing.rounds_axis(axes, run.rounds)
    panels[0, 0].set_ylim(bottom=0)  # after all are drawn, as the panels share it
    table = list(_node_rows(runs))
    if not table:
        for axes in panels.flat[: len(arms)]:
            drawing.mark_empty(axes)
    for place, axes in enumerate(panels.flat[len(arms) :], len(arms)):
        axes.set_visible(False)
        panels.flat[place - columns].tick_params(labelbottom=True)  # the lowest of its column
    for axes in panels[:, 0]:
        axes.set_ylabel("local reward")
    figure.supxlabel("round", fontsize=9.5, color=MUTED)
    seeds = {_first(by_seed)[0] for by_seed in runs.values()}
    which = f"seed {seeds.pop()}" if len(seeds) == 1 else "the first seed of each arm"
    caption = (
        f"Local reward of each node, round by round (grey), and their mean (black); {which}. After the paper's Fig. 1."
    )
    return Picture(f"fig1_{slug(regime)}", caption + note, figure, table, regime)


def _first(by_seed: Mapping[int, RunResult]) -> tuple[int, RunResult]:
    return next(iter(by_seed.items()))


def _node_rows(runs: Runs) -> Iterator[dict[str, Any]]:
    for arm, by_seed in runs.items():
        seed, run = _first(by_seed)
        for node, curve in series(run.own, "reward/local").items():
            yield from ({"arm": arm, "seed": seed, "node": node, "round": r, "reward": v} for r, v in curve.items())


def moving(regime: str, runs: Runs, study: Study) -> Picture:
    """The paper's figure 2: the mean over nodes, smoothed, with the band from the lowest node to the highest."""
    arms, note = drawing.shown_arms(runs, study)
    last = max(run.rounds for by_seed in runs.values() for run in by_seed.values())
    window = drawing.window_of(last)
    figure = drawing.blank(9.6, 4.0)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    table: list[dict[str, Any]] = []
    for axes, (key, words) in zip(panels, PANELS, strict=True):
        drawing.dress(axes, words, "round", "mean reward of a round" if axes is panels[0] else "")
        for arm, by_seed in runs.items():
            line, low, high = _smoothed(by_seed, key, window)
            table += [
                {"reward": key, "arm": arm, "round": round, "mean": line[round], "low": low[round], "high": high[round]}
                for round in line
            ]
            if not line or arm not in arms:
                continue
            if len(arms) <= BANDS:
                drawing.draw_band(axes, list(line), list(low.values()), list(high.values()), arms[arm])
            drawing.draw_line(axes, list(line), list(line.values()), arms[arm])
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
    return Picture(f"fig2_{slug(regime)}", caption + note, figure, table, regime)


def pair_of(study: Study, regime: str, runs: Runs) -> tuple[str, str] | None:
    """Swarm and isolated: the first contrast made in the regime, or 4/4 and 8/0."""
    named = [(c.treated, c.control) for c in study.contrasts.values() if regime in study.paired(c)]
    return next((pair for pair in [*named, ("4/4", "8/0")] if set(pair) <= runs.keys() and len(set(pair)) == 2), None)


def against(regime: str, runs: Runs, study: Study) -> Picture | None:
    """The paper's figure 3: cumulative reward of two arms, and the p of their difference."""
    pair = pair_of(study, regime, runs)
    seeds = sorted(runs[pair[0]].keys() & runs[pair[1]].keys()) if pair else []
    measured = all(series(runs[arm][seed].own, "reward/local") for arm in pair or () for seed in seeds)
    if pair is None or not seeds or not measured:
        return None
    last = min(runs[arm][seed].rounds for arm in pair for seed in seeds)
    sums = {arm: np.array([_cumulative(runs[arm][seed], last) for seed in seeds]) for arm in pair}
    at = sorted({max(1, round(last * step / POINTS)) for step in range(1, POINTS + 1)})
    tests = {str(t): sign_flip_test(sums[pair[0]][:, t] - sums[pair[1]][:, t]) for t in at}
    adjusted = holm({t: test.p for t, test in tests.items()})
    smallest = max(holm({t: test.smallest_p for t, test in tests.items()}).values(), default=1.0)

    figure = drawing.blank(6.4, 5.0)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1.3])
    drawing.dress(top, "", "", "cumulative local reward\nof a node")
    arms, _ = drawing.shown_arms(pair, study)
    table: list[dict[str, Any]] = []
    for arm, place in arms.items():
        value, low, high = drawing.band(sums[arm][:, at])
        x, y, lows, highs = ([0, *at], [0.0, *value], [0.0, *low], [0.0, *high])
        drawing.draw_band(top, x, lows, highs, place)
        look = drawing.style(place)
        top.plot(x, y, linewidth=1.8, zorder=3, color=look["color"], linestyle=look["linestyle"])
        sure = np.array([adjusted[str(t)] <= study.alpha for t in at])
        for mark, which in ((look["marker"], sure), ("x", ~sure)):
            if which.any():  # an unclipped line without points upsets the layout
                marked = np.array(at)[which], value[which]
                top.plot(*marked, mark, color=look["color"], markersize=4.5, zorder=4, clip_on=False)
        table += [
            {"arm": arm, "round": t, "cumulative": v, "low": a, "high": b, "adjusted_p": adjusted[str(t)]}
            for t, v, a, b in zip(at, value.tolist(), low.tolist(), high.tolist(), strict=True)
        ]
    top.set_ylim(bottom=0)
    drawing.dress(bottom, "", "round", "adjusted p")
    bottom.plot(at, [adjusted[str(t)] for t in at], color=INK, linewidth=1, marker=".", markersize=5, clip_on=False)
    bottom.axhline(study.alpha, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    bottom.annotate(
        f"{study.alpha:g}", (1.01, study.alpha), xycoords=("axes fraction", "data"), fontsize=8.5, va="center"
    )
    bottom.set_yscale("log")
    bottom.set_ylim(min(study.alpha, *adjusted.values()) / 2, 1.2)
    drawing.rounds_axis(top, last)
    drawing.legend(figure, arms, 6.4)
    caption = (
        f"{pair[0]} against {pair[1]}: cumulative local reward, mean over nodes; interquartile mean and 95 % interval "
        f"over {len(seeds)} seed{'s' * (len(seeds) > 1)}. Crosses: adjusted p above {study.alpha:g} (paired sign flips "
        f"of whole runs, Holm over the {len(at)} rounds tested; the smallest that could come out at all of them is "
        f"{smallest:.2g}). After the paper's Fig. 3."
    )
    return Picture(f"fig3_{slug(regime)}", caption, figure, table, regime)


def _smoothed(
    runs: Mapping[int, RunResult], key: str, window: int
) -> tuple[dict[int, float], dict[int, float], dict[int, float]]:
    """By round: the mean over nodes and seeds; the lowest and the highest node, each a mean over seeds."""
    parts: dict[str, dict[int, list[float]]] = {end: defaultdict(list) for end in ("mean", "low", "high")}
    for run in runs.values():
        values: dict[int, list[float]] = defaultdict(list)
        for curve in series(run.own, key).values():
            for round, value in drawing.trailing(curve, window).items():
                values[round].append(value)
        for round, each in values.items():
            parts["mean"][round].append(fmean(each))
            parts["low"][round].append(min(each))
            parts["high"][round].append(max(each))
    mean, low, high = ({r: fmean(parts[end][r]) for r in sorted(parts[end])} for end in ("mean", "low", "high"))
    return mean, low, high


def _cumulative(run: RunResult, last: int) -> Array:
    """The sum of rewards up to each round, from round 0, mean over the nodes that count."""
    gained: Array = np.zeros(last + 1)
    for curve in series(run.own, "reward/local").values():
        for round, value in curve.items():
            if round <= last:
                gained[round] += value
    return np.cumsum(gained) / max(1, len(run.nodes))
