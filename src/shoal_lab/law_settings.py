"""How should I set I, J, G and fill? What a law says of the machine, model and tasks of some short runs.

    pilot = read_pilots([Path("runs/small"), Path("runs/large")])
    best, *_ = divisions(law.exponent, pilot, sizes={8}, within=(0.8, 12.0))
    best.local, best.external, best.generations, best.fill, best.seconds

An update of `live` groups is worth live ^ exponent: so many fewer does it take. A division of a round is the better,
the more it is worth in a second. Answering and learning cost what they cost in the runs: so much for a round, and so
much for each completion, by least squares over all their rounds. The other nodes are taken to divide their rounds
alike.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from shoal.config.load import load_config
from shoal.errors import UserError
from shoal.runs.folder import CONFIG, run_metrics
from shoal.runs.tables import LEARNED, ROLLOUTS, read_table

LOCALS: Final = (1, 2, 4, 8, 16, 32)
"""Values of I that are looked at."""
PARTS: Final = ("generate", "score", "learn")
"""What the seconds of a round are counted for."""
MOST: Final = 32
"""The largest J."""


@dataclass(frozen=True)
class Pilot:
    """What a short run measured of one node."""

    nodes: int
    local: int
    external: int
    fill: bool
    answering: float
    """Seconds for a completion."""
    learning: float
    """Seconds to learn from a completion of a live group."""
    fixed: float
    """Seconds of a round, whatever it has."""
    groups: list[tuple[int, ...]]
    """For each of the nodes' own groups, how many of its completions had the same reward."""

    @property
    def generations(self) -> int:
        return sum(self.groups[0])

    def live(self, generations: int) -> float:
        """The share of groups with a gradient, had they been of so few completions (hypergeometric, no model)."""
        alike = sum(sum(math.comb(n, generations) for n in group) for group in self.groups)
        return 1 - alike / (len(self.groups) * math.comb(self.generations, generations))


@dataclass(frozen=True)
class Division:
    """How a round may be divided, and what comes of it."""

    local: int
    external: int
    generations: int
    fill: bool
    live: float
    """Live groups in an update."""
    seconds: float
    """Of a round."""

    def worth(self, exponent: float) -> float:
        """By the law, in a second."""
        return math.pow(self.live, exponent) / self.seconds


def divide(pilot: Pilot, local: int, external: int, generations: int, fill: bool) -> Division:
    """What a division gives on the machine of `pilot`."""
    share = pilot.live(generations)
    offered, wanted = (pilot.nodes - 1) * local * share, external + (local * (1 - share) if fill and external else 0)
    live = local * share + min(offered, wanted)
    seconds = generations * (local * pilot.answering + live * pilot.learning) + pilot.fixed
    return Division(local, external, generations, fill, live, seconds)


def divisions(exponent: float, pilot: Pilot, sizes: Collection[int], within: tuple[float, float]) -> list[Division]:
    """All divisions with groups of `sizes` whose live groups in an update lie `within` the range in which the law was
    seen to hold, the best first."""
    known = sorted(size for size in sizes if size <= pilot.generations)
    found = [
        divide(pilot, local, external, size, fill)
        for local, size in itertools.product(LOCALS, known)
        for external in sorted({0, *(min(MOST, local * times) for times in (1, 2, 3, 7) if times < pilot.nodes)})
        for fill in ((True, False) if external else (False,))
    ]
    different = {(one.local, one.generations, one.live): one for one in reversed(found)}  # of equal ones the smaller J
    known_to_hold = [one for one in different.values() if within[0] <= one.live <= within[1]]
    return sorted(known_to_hold, key=lambda one: -one.worth(exponent))


def read_pilots(folders: Sequence[Path]) -> Pilot:
    """Measures the folders of runs with the same model and tasks; I, J, G and fill are those of the last. Raises
    `UserError` for a run that has learned from nothing yet, and where all answered the same number of questions: what
    a round costs by itself would stay unknown."""
    answered, learned, scoring = [], [], []
    groups: list[tuple[int, ...]] = []
    for folder in folders:
        config = load_config(folder / CONFIG)
        rows = [row for row in run_metrics(folder) if all(row.get(f"seconds/{part}") is not None for part in PARTS)]
        table = _read(folder, LEARNED, "round node live")
        live = table[table["live"]].groupby(["round", "node"]).size()
        rollouts = _read(folder, ROLLOUTS, "round node seed index task reward")
        groups, made = groups_of(rollouts), rollouts.groupby(["round", "node"]).size()
        if not groups or live.empty:
            raise UserError(f"{folder} has learned from nothing yet: run it until some answers are right")
        size = config.policy.num_generations
        for row in rows:
            at = row["round"], row["node"]
            answered.append((made.get(at, 0), row["seconds/generate"]))
            learned.append((size * live.get(at, 0), row["seconds/learn"]))
            scoring.append(row["seconds/score"])
    if len({count for count, _ in answered}) == 1:
        raise UserError(
            "all pilot runs answer the same number of questions in a round, so what a round costs by itself is "
            "unknown: add one with another --local"
        )
    (by_round, answering), (by_update, learning) = line(answered), line(learned)
    swarm = config.swarm
    fixed = by_round + by_update + float(np.mean(scoring))
    return Pilot(swarm.nodes, swarm.local, swarm.external, config.selection.fill, answering, learning, fixed, groups)


def _read(folder: Path, table: str, columns: str) -> pd.DataFrame:
    if not any((folder / table).glob("[!.]*.parquet")):
        raise UserError(f"{folder} has no {table} yet: a pilot run needs some rounds, ten are enough")
    return read_table(folder, table, columns.split())


def line(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Seconds whatever there is, and for each more; neither is below 0."""
    counts, seconds = np.array(pairs, float).T
    each, fixed = np.polyfit(counts, seconds, 1) if np.ptp(counts) else (0.0, seconds.mean())
    if each < 0:
        each, fixed = 0.0, seconds.mean()
    elif fixed < 0:
        each, fixed = (counts * seconds).sum() / (counts**2).sum(), 0.0
    return float(fixed), float(each)


def groups_of(rollouts: pd.DataFrame) -> list[tuple[int, ...]]:
    """How many completions of each group have the same reward. Groups that lack completions are left out."""
    counts = [tuple(Counter(rewards).values()) for rewards in _rewards(rollouts)]
    most = max(map(sum, counts), default=0)
    return [group for group in counts if sum(group) == most]


def _rewards(rollouts: pd.DataFrame) -> Sequence[list[float]]:
    return [list(group) for _, group in rollouts.groupby(["round", "node", "task", "seed", "index"])["reward"]]
