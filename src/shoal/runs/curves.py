"""The picture of a run: held-out pass@1 and local reward against rounds, node by node and on average. A dashed line is
what answers that ignore the question get.

draw_curves(read_metrics(folder), folder / "curves.png", title="four guppies, pond")
"""

import io
import warnings
from collections.abc import Mapping, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from shoal.runs.disk import write_atomically
from shoal.runs.standing import RECENT, REWARD, RIGHT

INK, MUTED, NODE, MEAN = "#222222", "#6b6b6b", "#b4b4b4", "#0b5394"
NAMED_NODES = 8
"""More nodes than this are drawn but not named."""


def draw_curves(rows: Sequence[Mapping[str, Any]], path: Path, title: str = "") -> None:
    """Draw the metrics `rows` of a run (see `folder.read_metrics`) as a PNG of 1600 x 700 pixels at `path`.

    The same rows give the same file. Raises `UserError` if it cannot be written.
    """
    figure = Figure(figsize=(16, 7), dpi=100, facecolor="white")
    left, right = figure.subplots(1, 2, gridspec_kw={"wspace": 0.48})
    figure.subplots_adjust(left=0.04, right=0.855, bottom=0.11, top=0.82 if title else 0.89)
    figure.text(0.04, 0.925, title, fontsize=19, fontweight="bold", color=INK, parse_math=False)

    last = max([1, *(row["round"] for row in rows)])
    reward = _by_node(rows, REWARD)
    blind = next((100 * row["eval/blind"] for row in reversed(rows) if row.get("eval/blind") is not None), nan)
    _draw(left, 100 * _by_node(rows, RIGHT), 1, last, "Held-out pass@1 (%)", blind)
    _draw(right, reward, RECENT, last, f"Local reward, mean of the last {RECENT} rounds")

    picture = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # names may be in scripts that the font lacks
        figure.savefig(picture, format="png", dpi=100, metadata={"Software": None})
    write_atomically(path, picture.getvalue())


def _by_node(rows: Sequence[Mapping[str, Any]], key: str) -> pandas.DataFrame:
    """A figure: a row for each round that has it, and a column for each node."""
    known = [(row["round"], row["node"], float(row[key])) for row in rows if row.get(key) is not None]
    frame = pandas.DataFrame(known, columns=["round", "node", "value"])
    return frame.pivot(index="round", columns="node", values="value").astype(float)


def _draw(axes: Axes, nodes: pandas.DataFrame, window: int, last: int, caption: str, blind: float = nan) -> None:
    """One panel: a thin line for each node, and a thick one for their mean."""
    axes.set_title(caption, loc="left", fontsize=14, color=INK, pad=14)
    axes.set_xlabel("round", fontsize=13, color=MUTED)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    axes.tick_params(labelsize=12, colors=MUTED, length=0)
    axes.grid(axis="y", color="#e6e6e6", linewidth=1)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=True))
    axes.set_xlim(0, last)
    if nodes.empty:
        axes.set(ylim=(0, 1), yticks=[])
        axes.text(0.5, 0.5, "nothing measured yet", transform=axes.transAxes, ha="center", color=MUTED, fontsize=13)
        return
    mean, marker = nodes.mean(axis=1), "o" if len(nodes) <= 16 else ""
    if nodes.shape[1] > 1:
        named = nodes.shape[1] <= NAMED_NODES
        for number, (name, values) in enumerate(nodes.items()):
            line = values.dropna().rolling(window, min_periods=1).mean()
            color, label = (f"C{number}", str(name)[:14]) if named else (NODE, None)
            axes.plot(line, color=color, label=label, linewidth=1, marker=marker, markersize=3, clip_on=False)
    line, label = mean.rolling(window, min_periods=1).mean(), f"mean of {nodes.shape[1]}"
    axes.plot(line, color=MEAN, label=label, linewidth=3.2, marker=marker, markersize=7, clip_on=False)
    if isfinite(blind):
        axes.axhline(blind, color=MUTED, label="blind baseline", linewidth=1.2, linestyle="--")
    axes.set_ylim(min(0, axes.dataLim.ymin), 1.05 * axes.dataLim.ymax if axes.dataLim.ymax > 0 else 1)
    for text in axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=11).get_texts():
        text.set_parse_math(False)
