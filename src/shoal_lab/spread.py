"""How a task spread from node to node: who learned it from whom.

    table = read_learned(run.learned, run.nodes)
    first_live(table).loc[("node-3", "gcd")]     # in round 12, from a rollout of another node: `foreign`
    taught(table)[("node-1", "node-3")]          # 85 rollouts of node-1's were learned from by node-3

Provenance is no proof of cause: a node whose first live rollout of a task came from another might have found one
itself later. Arms without sharing tell.
"""

from pathlib import Path

import pandas as pd

from shoal.runs.tables import read_table

COLUMNS = ["round", "node", "maker", "task", "live", "foreign"]
"""What is needed of `tables.LEARNED_SCHEMA`."""


def read_learned(path: Path, nodes: list[str]) -> pd.DataFrame:
    """What `nodes` learned from: the columns of a run's `learned.parquet`. Empty where there is none."""
    return read_table(path.parent, path.name, COLUMNS, node=nodes)


def first_live(learned: pd.DataFrame) -> pd.DataFrame:
    """The first live rollout of each task (index: node, task) that each node learned from: its `round`, and whether it
    is `foreign`, which is whether none of that round's was the node's own."""
    live = learned[learned["live"]].sort_values(["round", "foreign"]).drop_duplicates(["node", "task"])
    return live.set_index(["node", "task"])[["round", "foreign"]].sort_index()


def taught(learned: pd.DataFrame) -> pd.Series:
    """How many rollouts of each other maker each node learned from (index: maker, node)."""
    return learned[learned["foreign"]].groupby(["maker", "node"]).size()
