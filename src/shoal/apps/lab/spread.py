"""How a task spread from node to node: who learned it from whom, and how much later than the first.

    table = read_learned(run.learned)
    first_live(table)[("node-3", "gcd")]         # First(round=12, makers=("node-1",), foreign=True)
    taught(table)[("node-1", "node-3")]          # 85 rollouts of node-1's were learned from by node-3
    followers(rows, threshold=0.2)               # lags behind each task's first learner

Provenance is no proof of cause: a node whose first live rollout of a task came from another might have found one
itself later. Arms without sharing tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import pyarrow as pa
import pyarrow.parquet as pq

from shoal.apps.lab.measures import HOLD, Rows, held_out, lags, tasks

COLUMNS = ["round", "node", "maker", "task", "live", "foreign"]
"""What is needed of `folder.LEARNED_SCHEMA`."""


@dataclass(frozen=True)
class First:
    """The first live rollout of a task that a node learned from."""

    round: int
    makers: tuple[str, ...]
    """Who made it: several, if there were as many in that round."""
    foreign: bool
    """Whether none of that round's was its own."""


@dataclass(frozen=True)
class Followers:
    """Nodes that were not the first of their task to reach the threshold, over all tasks that any node learned."""

    pairs: int
    """Of a node and a task."""
    reached: int
    mean_lag: float | None
    """Rounds behind the first, of those that reached it; too low, since the others are not in it."""


def read_learned(path: Path) -> pa.Table | None:
    """The columns of a run's `learned.parquet`; None where there is none."""
    if not any(path.glob("[!.]*.parquet")):
        return None
    return pq.read_table(path, columns=COLUMNS)


def first_live(table: pa.Table, nodes: Collection[str] | None = None) -> dict[tuple[str, str], First]:
    """The first live rollout of each task that each node (of `nodes`) learned from; in one round, its own comes before
    others'."""
    found: dict[tuple[str, str], tuple[int, bool]] = {}
    makers: dict[tuple[str, str], set[str]] = {}
    for row in table.filter(table["live"]).sort_by("round").to_pylist():
        key, when = (row["node"], row["task"]), (row["round"], row["foreign"])
        if nodes is not None and row["node"] not in nodes:
            continue
        if key not in found or when < found[key]:
            found[key], makers[key] = when, set()
        if when == found[key]:
            makers[key].add(row["maker"])
    return {key: First(round, tuple(sorted(makers[key])), foreign) for key, (round, foreign) in found.items()}


def foreign_share(firsts: Mapping[tuple[str, str], First]) -> float | None:
    """The share of nodes and tasks whose first live rollout was another node's."""
    return fmean(first.foreign for first in firsts.values()) if firsts else None


def taught(table: pa.Table, nodes: Collection[str] | None = None) -> dict[tuple[str, str], int]:
    """How many rollouts of each other maker each learner (of `nodes`) learned from: (maker, learner) -> n."""
    foreign = table.filter(table["foreign"])
    counted = Counter(zip(foreign["maker"].to_pylist(), foreign["node"].to_pylist(), strict=True))
    return {pair: count for pair, count in sorted(counted.items()) if nodes is None or pair[1] in nodes}


def followers(rows: Rows, threshold: float, hold: int = HOLD) -> Followers:
    """Of the nodes in `rows`, those that were later than a task's first learner (`measures.lags`), or never learned."""
    late = []
    for by_node in lags(rows, threshold, hold).values():
        times = list(by_node.values())
        times.remove(0)  # one first learner of each task; others as soon are followers without a lag
        late += times
    found = [time for time in late if time is not None]
    return Followers(len(late), len(found), fmean(found) if found else None)


def most_gained(rows: Rows) -> str | None:
    """The task whose held-out pass@1 rose most from the first evaluation to the last, on average over nodes."""
    gains = {}
    for task in tasks(rows):
        curves = held_out(rows, task).values()
        gains[task] = fmean(curve[max(curve)] - curve[min(curve)] for curve in curves) if curves else 0.0
    return max(gains, key=lambda task: gains[task], default=None)
