"""What `shoal watch` shows of a judge: its data folder, also while it serves.

SQLite counts, read-only. A node's round is a stranger's word, so curves are against the number of the question, which
the judge counts and whose pace it bounds; a point has more questions where there would be too many points.
"""

import functools
import hashlib
import math
import sqlite3
import time
from pathlib import Path
from typing import Any, Final

from shoal.errors import UserError
from shoal.evaluation.pass_at_k import wilson
from shoal.identity.keys import name_of
from shoal_host.judge.records import FILE
from shoal_host.judge.reports import BOARD, FROM, read
from shoal_web.watch.source import NAME, BusyError, CurveQuery, Data, MissingError, Source, changed

POINT: Final = 25
"""Questions of a node to a point of a curve, unless the page says otherwise."""
ROWS: Final = 500
"""Of the leaderboard."""
KEPT: Final = 64
"""Answers of SQLite that are kept until the records have changed."""
EVERY: Final = 10.0
"""Seconds for which they are good even then."""
POINTS: Final = 400
"""Of a curve, at most."""
PATIENCE: Final = 10.0
"""Seconds for a query."""
CURVES: Final = 12
"""Models and nodes that have one."""
RIGHT: Final = "o.outcome = 'scored' AND o.score >= 1"
OUTCOME: Final = f"CASE WHEN {RIGHT} THEN 'right' WHEN o.outcome = 'scored' THEN 'wrong' ELSE o.outcome END"
WHAT: Final = {"side": "a.in_swarm || '/' || a.model", "node": "hex(n.key)"}
COUNTED: Final = """
WITH kept AS (
  SELECT a.number / $width AS place, {what} AS what, {right} AS good {joined}
  WHERE o.outcome != 'void' {chosen}),
often AS (SELECT what FROM kept GROUP BY what ORDER BY count(*) DESC, what LIMIT $most)
SELECT what, place, sum(good) AS good, count(*) AS n FROM kept WHERE what IN (SELECT what FROM often)
GROUP BY 1, 2 ORDER BY 1, 2
"""
TOTALS: Final = f"""
SELECT {OUTCOME} AS what, count(*) AS n {FROM} GROUP BY 1 UNION ALL
SELECT 'nodes', count(*) FROM nodes UNION ALL
SELECT 'under way', count(*) FROM asks a WHERE NOT EXISTS (SELECT 1 FROM outcomes o WHERE o.ask = a.id)
"""


class JudgeSource(Source):
    """The records in a judge's folder. Raises `UserError` if they cannot be read."""

    kind = "judge"
    live_for = 120.0

    def __init__(self, folder: Path) -> None:
        self.title = f"judge: {folder.resolve().name}"
        self.id = hashlib.sha256(f"judge {folder.resolve()}".encode()).hexdigest()[:12]
        self._path = folder / FILE
        self._found = functools.lru_cache(KEPT)(self._read)
        self._mark, self._due = self.changed(), 0.0
        try:
            self._found(TOTALS)
        except (BusyError, OSError) as error:
            raise UserError(f"cannot read the judge's records in {folder}: {error}") from None

    def look(self) -> None:
        mark, now = self.changed(), time.monotonic()
        if mark != self._mark and now >= self._due:
            self._mark, self._due = mark, now + EVERY
            self._found.cache_clear()
            self.version += 1

    def changed(self) -> float:
        return max(changed(self._path), changed(self._path.with_name(f"{FILE}-wal")))

    def summary(self) -> Data:
        """The leaderboard, and how questions ended: right, wrong, lapsed, void, `under way`."""
        self.look()
        zero = dict.fromkeys(("right", "wrong", "lapsed", "void", "under way", "nodes"), 0)
        totals = zero | {row["what"]: row["n"] for row in self._found(TOTALS)}
        return {**self.brief(), "views": ["judge"], "nodes": [], "board": self._board(), "totals": totals}

    def curve(self, query: CurveQuery) -> Data:
        """`pass@1` of each model inside and outside of swarms, or of the nodes at the top of the leaderboard: points
        [the node's middle question, pass@1, its interval's ends, questions], each of `smooth` questions of a node."""
        if query.metric != "pass@1" or query.by == "task":
            raise MissingError("a judge has the curve pass@1, by model or node")
        [most] = self._found("SELECT coalesce(max(number), 0) + 1 AS number FROM asks")
        width = max(query.smooth or POINT, math.ceil(most["number"] / POINTS))
        by, chosen, values = "side", "", {}
        if query.by == "node":
            keys = list(dict.fromkeys(row["key"] for row in self._board()))[:CURVES]
            values = {f"key{at}": bytes.fromhex(key) for at, key in enumerate(keys)}
            by, chosen = "node", f"AND n.key IN ({', '.join(f'${name}' for name in values)})"
        sql = COUNTED.format(what=WHAT[by], right=RIGHT, joined=FROM, chosen=chosen)
        series: dict[str, list[list[float]]] = {}
        for row in self._found(sql, width=width, most=CURVES, **values):
            share, n = row["good"] / row["n"], row["n"]
            ends = (round(each, 5) for each in (share, *wilson(share, n)))
            series.setdefault(_name(by, row["what"]), []).append([(row["place"] + 0.5) * width - 0.5, *ends, n])
        return {"series": [{"name": name, "points": points} for name, points in series.items()]}

    def _board(self) -> list[Data]:
        return self._found(BOARD, most=ROWS)

    def _read(self, sql: str, **values: Any) -> list[Data]:
        """The rows of a query."""
        try:
            return list(read(self._path, sql, values, PATIENCE))
        except (UserError, sqlite3.Error) as error:
            raise BusyError(f"the judge's records cannot be read: {error}"[:NAME]) from error


def _name(by: str, what: str) -> str:
    if by == "node":
        return name_of(bytes.fromhex(what))
    in_swarm, _, model = what.partition("/")
    return f"{'swarm' if in_swarm == '1' else 'alone'}: {model[:NAME] or 'no model named'}"
