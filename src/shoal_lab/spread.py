"""How a task spread from node to node: who learned it from whom.

    table = read_learned(run.learned, run.nodes)
    first_live(table).loc[("node-3", "gcd")]     # round 12, maker node-1, foreign
    taught(table)[("node-1", "node-3")]          # 85 rollouts of node-1's were learned from by node-3

Provenance is no proof of cause: a node whose first live rollout of a task came from another might have found one
itself later. Arms without sharing tell.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from shoal.runs.tables import read_table
from shoal_lab.measures import held_out, tasks

COLUMNS = ["round", "node", "maker", "task", "live", "foreign"]
"""What is needed of `tables.LEARNED_SCHEMA`."""


def read_learned(path: Path, nodes: list[str]) -> pd.DataFrame:
    """What `nodes` learned from: the columns of a run's `learned.parquet`. Empty where there is none."""
    return read_table(path.parent, path.name, COLUMNS, node=nodes)


def first_live(learned: pd.DataFrame) -> pd.DataFrame:
    """The first live rollout of each task (index: node, task) that each node learned from: its `round`, its `maker`
    (several, if there were as many in that round), and whether it is `from_peer`, which is whether none of that round's
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
