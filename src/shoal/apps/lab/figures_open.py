"""The report of an open swarm (`shoal lab open`), with a figure after figure 3 of the paper."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from shoal.apps.lab import drawing
from shoal.apps.lab.drawing import Picture
from shoal.apps.lab.open_swarm import OpenSwarm, Step, compare_open, read_records
from shoal.errors import UserError
from shoal.runs.atomic import write_atomically
from shoal.runs.curves import INK, MUTED

SIDES = {"swarm": 1, "isolated": 0}
ALPHA = 0.05


def write_open_report(path: Path, out: Path) -> Path:
    """Writes open.json, open.png and open.csv into `out`; returns the figure's path."""
    try:
        found = compare_open(read_records(path))
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "open.json", (json.dumps(asdict(found), indent=1) + "\n").encode())
    drawing.save(draw_open(found), out)
    return out / "open.png"


def draw_open(found: OpenSwarm) -> Picture:
    """Cumulative scores of both sides, their difference with drop-outs treated in three ways, and the nodes left."""
    steps = found.cumulative
    x = [step.step for step in steps]
    figure = drawing.blank(6.6, 6.4)
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=[3, 2, 1.3])
    drawing.dress(top, "all that are there", "", "cumulative score\nof a node")
    for side, place in SIDES.items():
        values = np.array([getattr(step, side) for step in steps])
        drawing.draw_line(top, x, values.tolist(), place)
    for step in steps:
        if step.adjusted_p > ALPHA:
            middle.axvspan(step.step - 0.5, step.step + 0.5, color=drawing.GRID, linewidth=0, zorder=0)
    drawing.dress(middle, "difference: swarm less isolated", "", "cumulative score")
    ways = {
        "all": [step.difference for step in steps],
        "weighted": [step.weighted[0] - step.weighted[1] for step in steps],
        "completers": [step.completers[0] - step.completers[1] if step.completers else np.nan for step in steps],
    }
    for place, (way, gaps) in enumerate(ways.items()):
        middle.plot(x, gaps, color=INK, linewidth=1.5, linestyle=("-", "--", ":")[place], label=way)
    middle.axhline(0, color=MUTED, linewidth=0.8)
    middle.legend(frameon=False, fontsize=8.5, ncols=3, loc="upper left")
    drawing.dress(bottom, "", "judged answers of a node", "nodes left")
    for side, place in SIDES.items():
        look = drawing.style(place)
        counts = [getattr(step, f"{side}_nodes") for step in steps]
        bottom.plot(x, counts, color=look["color"], linestyle=look["linestyle"], linewidth=1.5)
    bottom.set_yscale("log")
    bottom.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    bottom.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bottom.yaxis.set_minor_locator(NullLocator())
    drawing.rounds_axis(top, max(x))
    drawing.legend(figure, SIDES, 6.6)
    left = ", ".join(f"{model} ({count})" for model, count in sorted(found.left_out.items()))
    caption = (
        f"Nodes in the swarm and isolated ones by their own judged answers; models: {', '.join(found.models)}, "
        "each counting as among isolated nodes. Top, and all: those that are there, whoever left. weighted: by the "
        "inverse probability of having stayed, estimated from earlier scores; completers: those who stayed to the end. "
        f"Grey: adjusted p above {ALPHA:g} ({found.method})."
        + (f" Left out, as one side alone has them: {left}." if left else "")
    )
    table = [
        _row(kind, step)
        for kind, each in (("cumulative", found.cumulative), ("per round", found.per_round))
        for step in each
    ]
    return Picture("open", caption, figure, table)


def _row(kind: str, step: Step) -> dict[str, Any]:
    row = {"kind": kind, **{k: v for k, v in asdict(step).items() if not isinstance(v, tuple)}}
    for name, pair in (("weighted", step.weighted), ("completers", step.completers)):
        if pair is not None:
            row |= {f"{name}_swarm": pair[0], f"{name}_isolated": pair[1]}
    return row
