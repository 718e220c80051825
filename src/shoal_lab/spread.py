"""How a task spread from node to node: who learned it from whom, and a picture of it.

    table = read_learned(run.learned, run.nodes)
    first_live(table).loc[("node-3", "gcd")]     # round 12, maker node-1, foreign
    taught(table)[("node-1", "node-3")]          # 85 rollouts of node-1's were learned from by node-3
    draw_spread(results)                         # -> Picture, or None

Provenance is no proof of cause: a node whose first live rollout of a task came from another might have found one
itself later. Arms without sharing tell.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from shoal.runs.curves import INK, MUTED
from shoal.runs.tables import read_table
from shoal_lab import drawing
from shoal_lab.drawing import Picture
from shoal_lab.measures import held_out, tasks
from shoal_lab.results import Results, RunResult

COLUMNS = ["round", "node", "maker", "task", "live", "foreign"]
"""What is needed of `tables.LEARNED_SCHEMA`."""


def read_learned(path: Path, nodes: list[str]) -> pd.DataFrame:
    """What `nodes` learned from: the columns of a run's `learned.parquet`. Empty where there is none."""
    return read_table(path.parent, path.name, COLUMNS, node=nodes)


def first_live(learned: pd.DataFrame) -> pd.DataFrame:
    """The first live rollout of each task (index: node, task) that each node learned from: its `round`, its `maker`
    (several, if there were as many in that round), and whether it is `foreign`, which is whether none of that round's
    was the node's own."""
    live = learned[learned["live"]].sort_values(["round", "foreign"])
    first = live.drop_duplicates(["node", "task"])[["node", "task", "round", "foreign"]]
    return live.merge(first).groupby(["node", "task"]).agg(
        {"round": "first", "foreign": "first", "maker": lambda makers: " ".join(sorted(set(makers)))}
    )  # fmt: skip


def taught(learned: pd.DataFrame) -> pd.Series:
    """How many rollouts of each other maker each node learned from (index: maker, node)."""
    return learned[learned["foreign"]].groupby(["maker", "node"]).size()


def most_gained(metrics: pd.DataFrame) -> str | None:
    """The task whose held-out pass@1 rose most from the first evaluation to the last, on average over nodes."""
    gains = {}
    for task in tasks(metrics):
        passed = held_out(metrics, task)
        gains[task] = (passed.ffill().iloc[-1] - passed.bfill().iloc[0]).mean() if len(passed) else 0.0
    return max(gains, key=lambda task: gains[task], default=None)


def draw_spread(results: Results) -> Picture | None:
    """A heat map of how one task spread through one swarm (`swarm_of`)."""
    chosen = swarm_of(results)
    if chosen is None:
        return None
    run, task = chosen
    passed = held_out(run.own, task)
    passed = passed[[node for node in run.nodes if node in passed]]
    names, rounds = list(passed), list(passed.index)
    firsts = first_live(read_learned(run.learned, names)).reset_index()
    firsts = firsts[firsts["task"] == task]

    figure = drawing.blank(7.6, min(12.0, max(2.8, 1.7 + 0.3 * len(names))))
    axes = figure.subplots()
    drawing.dress(axes, "", "round", "")
    axes.grid(False)
    middles = [(a + b) / 2 for a, b in pairwise(rounds)]
    half = (rounds[-1] - rounds[-2]) / 2 if len(rounds) > 1 else 0.5
    edges = [rounds[0] - (middles[0] - rounds[0] if middles else half), *middles, rounds[-1] + half]
    top = max(0.05, float(passed.max(axis=None)))
    heat = axes.pcolormesh(edges, np.arange(len(names) + 1) - 0.5, passed.T, cmap="Greys", vmin=0, vmax=top)
    axes.hlines(np.arange(1, len(names)) - 0.5, edges[0], edges[-1], color="white", linewidth=2)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.invert_yaxis()
    bar = figure.colorbar(heat, ax=axes, pad=0.02)
    bar.set_label(f"held-out pass@1, {task}", fontsize=9.5, color=MUTED, parse_math=False)
    bar.ax.tick_params(labelsize=8.5, colors=MUTED)
    white: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": INK, "markersize": 7, "linestyle": "none"}
    for words, foreign, mark in (("from another node", True, "o"), ("its own", False, "s")):
        at = firsts[firsts["foreign"] == foreign]
        axes.plot(at["round"], [names.index(node) for node in at["node"]], mark, label=words, **white)
    figure.legend(
        loc="outside upper left", ncols=2, frameon=False, fontsize=9, title="first live rollout of the task:",
        title_fontsize=9, alignment="left",
    )  # fmt: skip
    evaluated = passed.reset_index().melt("round", value_name="pass@1").dropna().assign(what="held out")
    given = firsts[["node", "round", "maker"]].rename(columns={"maker": "makers"}).assign(what="first live")
    table = pd.concat([evaluated, given]).reindex(columns=["node", "round", "pass@1", "what", "makers"])
    caption = (
        f"How {task}, the task that gained most in it, went through one swarm, as an example: held-out pass@1 of each "
        f"node ({run.cell}: the first seed of the first treated arm that takes others' rollouts). "
        "A circle where a node's first live rollout of it was another node's, a square where it was its own."
    )
    return Picture("spread", caption, figure, table)


def swarm_of(results: Results) -> tuple[RunResult, str] | None:
    """The run and the task to show: the first regime of specialists (or the first), a treated arm that takes others'
    rollouts, its first seed, the task that gained most."""
    wanted = [contrast.treated for contrast in results.study.contrasts.values()]
    for regime in sorted(results.runs, key=lambda name: "special" not in name.lower()):
        arms = results.runs[regime]
        for arm in sorted(arms, key=lambda name: wanted.index(name) if name in wanted else len(wanted)):
            run = next(iter(arms[arm].values()))
            task = most_gained(run.own)
            if run.external and task is not None:
                return run, task
    return None
