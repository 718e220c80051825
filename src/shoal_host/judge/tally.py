"""Curves of a judge's records, so many rounds to a point: SQLite, read-only, also while the judge writes.

A node's round is a stranger's word. Rounds far beyond the others' are left out, so that one node cannot squeeze all
curves into a corner, and a point has more rounds where there would be too many points.
"""

import math
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shoal.evaluation.pass_at_k import wilson
from shoal.identity.keys import name_of
from shoal_host.judge.reports import FROM, read
from shoal_web.watch.source import NAME, BusyError, Data

POINTS: Final = 400
"""Of a curve, at most."""
PATIENCE: Final = 10.0
"""Seconds for a query."""
CURVES: Final = 12
"""Models and nodes that have one."""
FAR: Final = 10
"""Rounds beyond this many times the ninth decile of all rounds are left out."""
RIGHT: Final = "o.outcome = 'scored' AND o.score >= 1"
WHAT: Final = {
    "side": "a.in_swarm || '/' || a.model",
    "node": "hex(n.key)",
    "task": "a.label",
    "outcome": f"CASE WHEN {RIGHT} THEN 'right' WHEN o.outcome = 'scored' THEN 'wrong' ELSE o.outcome END",
}
COUNTED: Final = """
WITH kept AS (
  SELECT a.round / $rounds AS place, {what} AS what, {right} AS good {joined}
  WHERE a.round <= $last AND {chosen}),
often AS (SELECT what FROM kept GROUP BY what ORDER BY count(*) DESC, what LIMIT $most)
SELECT what, place, sum(good), count(*) FROM kept WHERE what IN (SELECT what FROM often) GROUP BY 1, 2 ORDER BY 1, 2
"""
REACH: Final = "SELECT round FROM asks ORDER BY round LIMIT 1 OFFSET (SELECT count(*) * 9 / 10 FROM asks)"
TOTALS: Final = f"""
SELECT {WHAT["outcome"]} AS what, count(*) {FROM} GROUP BY 1 UNION ALL
SELECT 'nodes', count(*) FROM nodes UNION ALL
SELECT 'under way', count(*) FROM asks a WHERE NOT EXISTS (SELECT 1 FROM outcomes o WHERE o.ask = a.id) UNION ALL
SELECT 'restarts', count(DISTINCT time) FROM restarts
"""
FAILURES: Final = "SELECT failure, count(*) FROM outcomes WHERE failure != '' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 50"


@dataclass(frozen=True)
class Span:
    """The rounds of a curve: the last one, how many to a point, and how many questions lie beyond."""

    last: int
    rounds: int
    beyond: int


class Tally:
    """Counts over the records in a file. Raises `BusyError` for what takes too long or cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self, sql: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Raises `UserError` if the file cannot be opened."""
        try:
            return [tuple(row.values()) for row in read(self.path, sql, values, PATIENCE)]
        except sqlite3.Error as error:
            raise BusyError(f"the records cannot be read just now: {error}") from error

    def totals(self) -> dict[str, int]:
        """Questions by outcome (right, wrong, lapsed, void), `under way`, `nodes` and `restarts`."""
        zero = dict.fromkeys(("right", "wrong", "lapsed", "void", "under way", "nodes", "restarts"), 0)
        return zero | dict(self.rows(TOTALS))

    def failures(self) -> list[Data]:
        """The errors of scorers, the most frequent first."""
        return [{"failure": failure[:NAME], "times": count} for failure, count in self.rows(FAILURES)]

    def span(self, rounds: int) -> Span:
        """`rounds` to a point, or more if there would be too many points."""
        found = self.rows(REACH)
        [(last, beyond)] = self.rows(
            "SELECT max(round) FILTER (WHERE round <= $reach), count(*) FILTER (WHERE round > $reach) FROM asks",
            {"reach": FAR * max(rounds, found[0][0] if found else 0)},
        )
        return Span(last or 0, max(rounds, math.ceil(((last or 0) + 1) / POINTS)), beyond)

    def passed(self, span: Span, by: str, keys: list[str] | None = None) -> list[Data]:
        """A curve for each `side` (model, inside or outside of swarms), `node` or `task` with most questions: points
        [middle round, pass@1, its interval's ends, questions]. `keys`: of these nodes alone, in hex."""
        chosen = "o.outcome != 'void'"
        values: dict[str, Any] = {}
        if keys is not None:
            values = {f"key{at}": bytes.fromhex(key) for at, key in enumerate(keys)}
            chosen += f" AND n.key IN ({', '.join(f'${name}' for name in values)})"
        series: dict[str, list[list[float]]] = {}
        for what, place, right, n in self._counted(span, by, chosen, values):
            shares = (right / n, *wilson(right / n, n))
            middle = (place + 0.5) * span.rounds - 0.5
            series.setdefault(_name(by, what), []).append([middle, *(round(share, 5) for share in shares), n])
        return [{"name": name, "points": points} for name, points in series.items()]

    def outcomes(self, span: Span) -> list[Data]:
        """Questions of each outcome: points [middle round, questions]."""
        series: dict[str, list[list[float]]] = {what: [] for what in ("right", "wrong", "lapsed", "void")}
        for what, place, _, n in self._counted(span, "outcome", "true", {}):
            series[what].append([(place + 0.5) * span.rounds - 0.5, n])
        return [{"name": name, "points": points} for name, points in series.items()]

    def _counted(self, span: Span, by: str, chosen: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        sql = COUNTED.format(what=WHAT[by], right=RIGHT, joined=FROM, chosen=chosen)
        bounds = {"rounds": span.rounds, "last": span.last, "most": 200 if by == "task" else CURVES}
        return self.rows(sql, {**values, **bounds})


def _name(by: str, what: str) -> str:
    if by == "node":
        return name_of(bytes.fromhex(what))
    if by == "task":
        return what[:NAME]
    in_swarm, _, model = what.partition("/")
    return f"{'swarm' if in_swarm == '1' else 'alone'}: {model[:NAME] or 'no model named'}"
