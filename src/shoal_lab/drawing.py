"""The parts of a report's figures, and how they are saved: each as PNG, with its numbers as CSV.

    save(picture, folder)                # NAME.png and NAME.csv

Figures can be read in black and white: arms differ by dashes and marks, not by colour alone.
"""

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image  # which matplotlib needs

from shoal.runs.curves import INK, MUTED
from shoal.runs.disk import write_atomically
from shoal_lab.statistics import iqm_interval

DPI = 150
SHADES = 64
"""Colours of a PNG."""
RESAMPLES = 2000
"""For the band around a curve, which has many points."""
GRID = "#e6e6e6"
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


def style(place: int) -> dict[str, Any]:
    """How the arm at `place` of the study is drawn."""
    return {
        "color": COLOURS[place % len(COLOURS)],
        "linestyle": DASHES[place % len(DASHES)],
        "marker": MARKS[place % len(MARKS)],
    }


def blank(width: float, height: float) -> Figure:
    """A figure without panels, in inches."""
    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def dress(axes: Axes, title: str = "", x: str = "", y: str = "") -> None:
    """Titles and spines, as in the figures of a run."""
    axes.set_title(title, loc="left", fontsize=10.5, color=INK, parse_math=False)
    axes.set_xlabel(x, fontsize=9.5, color=MUTED, parse_math=False)
    axes.set_ylabel(y, fontsize=9.5, color=MUTED, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color(MUTED)
    axes.tick_params(labelsize=8.5, colors=MUTED, length=3)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def mark_empty(axes: Axes) -> None:
    """Writes so into a panel without lines."""
    if not axes.lines:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color=MUTED, fontsize=9.5)


def legend(figure: Figure, arms: Sequence[str], width: float) -> None:
    """The arms above all panels, with the marks and dashes of each."""
    handles = [Line2D([], [], linewidth=1.8, markersize=5, **style(place)) for place in range(len(arms))]
    columns = max(1, min(len(arms), int(width / (0.6 + 0.09 * max(map(len, arms), default=1)))))
    words = figure.legend(
        handles, arms, loc="outside upper left", ncols=columns, frameon=False, fontsize=9.5, handlelength=3.4
    )
    for text in words.get_texts():
        text.set_parse_math(False)


def draw_arms(axes: Axes, table: pd.DataFrame, arms: Sequence[str]) -> None:
    """The curve of each of `arms`, with about eight marks, and its band, which is fainter, the more arms there are.

    `table` has a row for each point, with columns arm, x, value, low and high.
    """
    for place, arm in enumerate(arms):
        rows = table[table["arm"] == arm]
        if rows.empty:
            continue
        look = style(place)
        faint: dict[str, Any] = {"alpha": min(0.13, 0.6 / len(arms)), "linewidth": 0, "zorder": 2}
        axes.fill_between(rows["x"], rows["low"], rows["high"], color=look["color"], **faint)
        step = max(1, len(rows) // 8)
        every = (place * step // 4 % step, step)  # each arm's marks at other places
        axes.plot(rows["x"], rows["value"], linewidth=1.8, markersize=4.5, markevery=every, zorder=3 + place, **look)


def band(values: pd.DataFrame) -> pd.DataFrame:
    """Of a row for each x and a column for each run: x, the interquartile mean over runs as `value`, and the ends of
    its 95 % interval as `low` and `high`, which for one run are the value."""
    found = [iqm_interval(row, resamples=RESAMPLES) for row in values.to_numpy()]
    ends = pd.DataFrame(found, index=values.index, columns=["value", "low", "high"], dtype=float)
    return ends.rename_axis("x").reset_index()
