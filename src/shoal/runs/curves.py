"""The picture of a run: held-out pass@1 and local reward against rounds, node by node and on average. A dashed line is
what answers that ignore the question get.

draw_curves(read_metrics(folder), folder / "curves.png", title="four guppies, pond")
"""

import io
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from shoal.runs.disk import write_atomically

INK, MUTED, NODE, MEAN, FAINT = "#222222", "#6b6b6b", "#b4b4b4", "#0b5394", "#9dbbd9"
LABELLED_NODES = 8
"""More nodes than this are drawn but not named."""

Series = dict[int, float]
"""A value for each round that has one."""


def draw_curves(rows: Sequence[Mapping[str, Any]], path: Path, title: str = "") -> None:
    """Draw the metrics `rows` of a run (see `folder.read_metrics`) as a PNG of 1600 x 700 pixels at `path`.

    The same rows give the same file. Raises `UserError` if it cannot be written.
    """
    figure = Figure(figsize=(16, 7), dpi=100, facecolor="white")
    left, right = figure.subplots(1, 2, gridspec_kw={"wspace": 0.32})
    figure.subplots_adjust(left=0.05, right=0.905, bottom=0.11, top=0.82 if title else 0.89)
    figure.text(0.05, 0.925, title, fontsize=19, fontweight="bold", color=INK, parse_math=False)

    last = max([1, *(int(row["round"]) for row in rows)])
    blind = mean_over_nodes(_series(rows, "eval/blind", 100))
    _draw(left, _series(rows, "eval/pass@1", 100), 1, last, "Held-out pass@1 (%)", blind)
    reward = _series(rows, "reward/local", 1)
    window = min(10, max(1, len(mean_over_nodes(reward)) // 10))
    over = f", moving average of {window} rounds (faint: each round)" if window > 1 else ""
    _draw(right, reward, window, last, f"Local reward{over}")

    picture = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # names may be in scripts that the font lacks
        figure.savefig(picture, format="png", dpi=100, metadata={"Software": None})
    write_atomically(path, picture.getvalue())


def moving_average(series: Series, window: int) -> Series:
    """The mean of each value and those before it, `window` values in all."""
    rounds = sorted(series)
    return {
        round: fmean(series[past] for past in rounds[max(0, at + 1 - window) : at + 1])
        for at, round in enumerate(rounds)
    }


def mean_over_nodes(nodes: Mapping[str, Series]) -> Series:
    """In each round, the mean over the nodes that have a value."""
    values = defaultdict(list)
    for series in nodes.values():
        for round, value in series.items():
            values[round].append(value)
    return {round: fmean(values[round]) for round in sorted(values)}


def _series(rows: Sequence[Mapping[str, Any]], key: str, scale: float) -> dict[str, Series]:
    nodes: dict[str, Series] = defaultdict(dict)
    for row in rows:
        if row.get(key) is not None:
            nodes[str(row["node"])][int(row["round"])] = scale * row[key]
    return nodes


def _draw(
    axes: Axes, nodes: Mapping[str, Series], window: int, last: int, caption: str, blind: Series | None = None
) -> None:
    """One panel: a thin line for each node, a thick one for their mean, named where they end."""
    axes.set_title(caption, loc="left", fontsize=14, color=INK, pad=14)
    axes.set_xlabel("round", fontsize=13, color=MUTED)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    axes.tick_params(labelsize=12, colors=MUTED, length=0)
    axes.tick_params(axis="x", length=4)
    axes.grid(axis="y", color="#e6e6e6", linewidth=1)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=True))
    axes.set_xlim(0, last)
    if not nodes:
        axes.set(ylim=(0, 1), yticks=[])
        axes.text(0.5, 0.5, "nothing measured yet", transform=axes.transAxes, ha="center", color=MUTED, fontsize=13)
        return

    mean = mean_over_nodes(nodes)
    dotted = len(mean) <= 16
    named = len(nodes) <= LABELLED_NODES
    ends: list[tuple[float, str, str]] = []  # height, text, colour
    if len(nodes) > 1:
        for node in sorted(nodes):
            line = moving_average(nodes[node], window)
            _plot(axes, line, NODE, 1.4 if named else 0.6, 3.5 if dotted else 0)
            if named:
                ends.append((line[max(line)], node if len(node) <= 14 else node[:13] + "…", MUTED))
    if window > 1:
        _plot(axes, mean, FAINT, 1, 0)
    line = moving_average(mean, window)
    _plot(axes, line, MEAN, 3.2, 7 if dotted else 0)
    each = "" if named else "\n(thin: each)"
    ends.append((line[max(line)], f"mean of {len(nodes)}{each}" if len(nodes) > 1 else next(iter(nodes)), MEAN))

    if blind:
        height = blind[max(blind)]
        axes.axhline(height, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)
        ends.append((height, "blind baseline", MUTED))

    axes.set_ylim(min(0, axes.dataLim.ymin), 1.05 * axes.dataLim.ymax if axes.dataLim.ymax > 0 else 1)
    _name_ends(axes, ends)


def _plot(axes: Axes, series: Series, colour: str, width: float, dot: float) -> None:
    rounds = sorted(series)
    values = [series[round] for round in rounds]
    axes.plot(rounds, values, color=colour, linewidth=width, marker="o", markersize=dot, clip_on=False, zorder=2)


def _name_ends(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write each line's name beside its end, moved up or down until no two overlap."""
    bottom, top = axes.get_ylim()
    step = 0.045 * (top - bottom)
    ends = sorted(ends)
    heights = [value for value, _, _ in ends]
    for _ in range(100):  # neighbours that are too close move apart by halves
        for lower in range(len(ends) - 1):
            push = (step - (heights[lower + 1] - heights[lower])) / 2
            if push > 0:
                heights[lower] -= push
                heights[lower + 1] += push
    for height, (value, text, colour) in zip(heights, ends, strict=True):
        axes.annotate(
            text,
            xy=(1.008, value),
            xytext=(1.035, height),
            xycoords=("axes fraction", "data"),
            textcoords=("axes fraction", "data"),
            va="center",
            fontsize=13,
            color=colour,
            fontweight="bold" if colour == MEAN else "normal",
            parse_math=False,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": NODE, "linewidth": 0.8, "shrinkA": 2, "shrinkB": 0},
        )
