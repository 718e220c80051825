"""What a judge's records say: a leaderboard, curves over the rounds, whether two judges agree.

pass@1 is the share of right answers among the questions: lapsed ones are wrong, void ones are left out. Intervals are
Wilson's, for one node, whose questions are independent draws. They say nothing about swarms, whose nodes learn from
each other.

The leaderboard is ordered by the lower end of the interval: whoever makes many keys and shows the luckiest stands below
a node that has answered more questions equally well.
"""

from __future__ import annotations

import contextlib
import csv
import heapq
import json
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist
from typing import IO, Any

from shoal.apps.judge.records import connect
from shoal.evaluation.pass_at_k import wilson
from shoal.identity.keys import name_of

Report = dict[str, Any]
COLUMNS = ("model", "in_swarm", "round", "number", "task", "score", "outcome", "failure", "time")
RIGHT = "sum(o.outcome = 'scored' AND o.score >= 1)"
FROM = "FROM asks a JOIN nodes n ON n.id = a.node JOIN outcomes o ON o.ask = a.id"
ROWS = f"""
SELECT n.key, a.model, a.in_swarm, a.round, a.number, a.label, o.score, o.outcome, o.failure, a.asked
{FROM} ORDER BY a.id
"""
BOARD = f"""
SELECT n.key, a.model, min(a.in_swarm), max(a.in_swarm), count(*), sum(o.outcome != 'void'), {RIGHT},
  sum(o.outcome = 'lapsed'), max(a.round), max(a.asked) {FROM} GROUP BY n.key, a.model
"""
CURVE = f"""
SELECT a.round / ?, a.in_swarm, a.model, {RIGHT}, count(*), count(DISTINCT a.node) {FROM} WHERE o.outcome != 'void'
GROUP BY 1, 2, 3 ORDER BY 3, 2, 1
"""
TOTALS = f"SELECT n.key, {RIGHT}, count(*) {FROM} WHERE o.outcome != 'void' GROUP BY n.key"


def rows(path: Path) -> Iterator[Report]:
    """One for each settled question, in order: for statistics over an open swarm. Rounds are the node's own count,
    `in_swarm` and `model` are its declarations, `time` is when it asked."""
    with contextlib.closing(connect(path, read_only=True)) as records:
        for key, *values in records.execute(ROWS):
            values[1] = bool(values[1])
            yield {"node": name_of(key), "key": key.hex(), **dict(zip(COLUMNS, values, strict=True))}


def leaderboard_of(path: Path, most: int | None = None, patience: float | None = None) -> list[Report]:
    """A row for each node and model, the best first. `most` rows; after `patience` seconds it raises
    `sqlite3.OperationalError`."""
    with contextlib.closing(connect(path, read_only=True)) as records:
        timer = threading.Timer(patience or 0.0, records.interrupt)
        if patience is not None:
            timer.start()
        try:
            standing = (_standing(*row) for row in records.execute(BOARD))
            found = sorted(standing, key=_place) if most is None else heapq.nsmallest(most, standing, key=_place)
        finally:
            timer.cancel()
    return [{"rank": rank, **row} for rank, row in enumerate(found, 1)]


def _standing(key: bytes, model: str, low_in: int, high_in: int, asked: int, n: int, right: int, *rest: Any) -> Report:
    lapsed, round, time = rest
    in_swarm = bool(low_in) if low_in == high_in else None
    head = {"node": name_of(key), "key": key.hex(), "model": model, "in_swarm": in_swarm}
    return {**head, **_pass_at_1(right, n), "lapsed": lapsed, "void": asked - n, "round": round, "time": time}


def _pass_at_1(right: int, n: int) -> Report:
    low, high = wilson(right / n, n) if n else (0.0, 1.0)
    return {"pass@1": right / n if n else None, "low": low, "high": high, "questions": n}


def _place(row: Report) -> tuple[float, str, str]:
    return -row["low"], row["key"], row["model"]


def curve(path: Path, window: int = 25) -> list[Report]:
    """pass@1 by windows of rounds, for each model inside and outside of swarms: all questions of all such nodes. The
    interval takes them as independent; nodes of one swarm are not."""
    if window < 1:
        raise ValueError(f"a window of {window} rounds")
    found = []
    with contextlib.closing(connect(path, read_only=True)) as records:
        for place, in_swarm, model, right, n, nodes in records.execute(CURVE, (window,)):
            first = place * window
            head = {"model": model, "in_swarm": bool(in_swarm), "first": first, "last": first + window - 1}
            found.append({**head, **_pass_at_1(right, n), "nodes": nodes})
    return found


def compare(one: Path, other: Path) -> list[Report]:
    """What two judges say about the nodes that both have asked, the least likely agreement first.

    `p` is that of the two-sided z-test for two proportions with a pooled variance; `holm` is `p` after Holm's step-down
    correction over all nodes (Scandinavian Journal of Statistics 6, 1979). A small one says that the judges' scorers,
    suites or honesty differ, or that the node answers them differently.
    """
    first, second = _totals(one), _totals(other)
    found: list[Report] = []
    for key in sorted(first.keys() & second.keys()):
        (a, n), (b, m) = first[key], second[key]
        pooled = (a + b) / (n + m)
        spread = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
        p = 2 * (1 - NormalDist().cdf(abs(a / n - b / m) / spread)) if spread else 1.0
        found.append({"node": name_of(key), "key": key.hex(), "one": a / n, "other": b / m, "n": n, "m": m, "p": p})
    found.sort(key=lambda row: row["p"])
    highest = 0.0
    for place, row in enumerate(found):
        highest = max(highest, min(1.0, row["p"] * (len(found) - place)))
        row["holm"] = highest
    return found


def write(found: list[Report] | Iterator[Report], form: str, file: IO[str]) -> None:
    """Writes CSV, or JSON Lines."""
    if form == "json":
        for row in found:
            file.write(json.dumps(row) + "\n")
        return
    writer = None
    for row in found:
        if writer is None:
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow(row | {"model": _no_formula(row["model"])} if "model" in row else row)


def _no_formula(name: str) -> str:
    """A stranger's text that a spreadsheet does not take for a formula."""
    return f"'{name}" if name[:1] in ("=", "+", "-", "@", "\t", "\r") else name


def _totals(path: Path) -> dict[bytes, tuple[int, int]]:
    with contextlib.closing(connect(path, read_only=True)) as records:
        return {key: (right, n) for key, right, n in records.execute(TOTALS)}
