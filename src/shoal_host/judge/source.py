"""What `shoal watch` shows of a judge: its data folder, also while it serves (`remote`: a judge at an address).

SQLite counts, read-only. A node's round is a stranger's word: rounds far beyond the others' are left out of curves, so
that one node cannot squeeze all into a corner, and a point has more rounds where there would be too many points.
"""

import hashlib
import math
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from shoal.errors import UserError
from shoal.evaluation.pass_at_k import wilson
from shoal.identity.keys import name_of
from shoal_host.judge.records import FILE
from shoal_host.judge.reports import FROM, leaderboard_of, read
from shoal_web.watch.files import changed
from shoal_web.watch.source import NAME, BusyError, CurveQuery, Data, MissingError, Source, TaskQuery

POINT: Final = 25
"""Rounds to a point of a curve, unless the page says otherwise."""
ROWS: Final = 500
"""Of the leaderboard."""
KEPT: Final = 64
"""Answers that are kept until the records have changed."""
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
SELECT 'under way', count(*) FROM asks a WHERE NOT EXISTS (SELECT 1 FROM outcomes o WHERE o.ask = a.id)
"""
FAILURES: Final = "SELECT failure, count(*) FROM outcomes WHERE failure != '' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 50"
T = TypeVar("T")


@dataclass(frozen=True)
class Span:
    """The rounds of a curve: the last one, how many to a point, and how many questions lie beyond."""

    last: int
    rounds: int
    beyond: int


class JudgeSource(Source):
    """The records in a judge's folder. Raises `UserError` if they cannot be read."""

    kind = "judge"
    live_for = 120.0

    def __init__(self, folder: Path) -> None:
        self.title = f"judge: {folder.resolve().name}"
        self.id = judge_id(str(folder.resolve()))
        self._path = folder / FILE
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, Any] = OrderedDict()
        self._mark = self.changed()
        self._spent = self._due = 0.0
        try:
            self._once("totals", self._totals)
        except (BusyError, OSError) as error:
            raise UserError(f"cannot read the judge's records in {folder}: {error}") from None

    def look(self) -> None:
        """Counting takes at most a twentieth of the time, however long each count takes."""
        mark = self.changed()
        if mark == self._mark or time.monotonic() < self._due or not self._lock.acquire(blocking=False):
            return
        self._mark = mark
        self._kept.clear()
        self._due, self._spent = time.monotonic() + max(1.0, 20 * self._spent), 0.0
        self.version += 1
        self._lock.release()

    def changed(self) -> float:
        return max(changed(self._path), changed(self._path.with_name(f"{FILE}-wal")))

    def summary(self) -> Data:
        """The leaderboard, and how questions ended."""
        self.look()
        totals, failures = self._once("totals", self._totals), self._once("failures", self._failures)
        return {**self.brief(), **judge_summary(self._board(), totals), "curves": True, "failures": failures}

    def curve(self, query: CurveQuery) -> Data:
        """`pass@1`, `smooth` rounds to a point, of each model inside and outside of swarms, or (`by` node) of the
        nodes at the top of the leaderboard; or `outcomes`, counted."""
        span = self._span(query.smooth)
        if query.metric == "outcomes":
            series = self._once((query.metric, span), lambda: self._outcomes(span))
        elif query.metric == "pass@1" and query.by == "node":
            keys = list(dict.fromkeys(row["key"] for row in self._board()))[:CURVES]
            series = self._once(("nodes", span), lambda: self._passed(span, "node", keys))
        elif query.metric == "pass@1":
            series = self._once(("sides", span), lambda: self._passed(span, "side"))
        else:
            raise MissingError("a judge has the curves pass@1 and outcomes")
        return {"rounds_per_point": span.rounds, "beyond": span.beyond, "series": series}

    def tasks(self, query: TaskQuery) -> Data:
        """pass@1 of each task, of all nodes or of the one whose key is `node`."""
        if query.node is not None and query.node not in {row["key"] for row in self._board()}:
            raise MissingError("there is no such node")
        span, keys = self._span(query.smooth), [query.node] if query.node else None
        return {"series": self._once(("tasks", span, query.node), lambda: self._passed(span, "task", keys))}

    def _board(self) -> list[Data]:
        return self._once("board", lambda: leaderboard_of(self._path, ROWS, PATIENCE))

    def _span(self, rounds: int) -> Span:
        rounds = rounds or POINT
        return self._once(("span", rounds), lambda: self._span_of(rounds))

    def _rows(self, sql: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in read(self._path, sql, values, PATIENCE)]

    def _totals(self) -> dict[str, int]:
        """Questions by outcome (right, wrong, lapsed, void), `under way` and `nodes`."""
        zero = dict.fromkeys(("right", "wrong", "lapsed", "void", "under way", "nodes"), 0)
        return zero | dict(self._rows(TOTALS))

    def _failures(self) -> list[Data]:
        """The errors of scorers, the most frequent first."""
        return [{"failure": failure[:NAME], "times": count} for failure, count in self._rows(FAILURES)]

    def _span_of(self, rounds: int) -> Span:
        """`rounds` to a point, or more if there would be too many points."""
        found = self._rows(REACH)
        [(last, beyond)] = self._rows(
            "SELECT max(round) FILTER (WHERE round <= $reach), count(*) FILTER (WHERE round > $reach) FROM asks",
            {"reach": FAR * max(rounds, found[0][0] if found else 0)},
        )
        return Span(last or 0, max(rounds, math.ceil(((last or 0) + 1) / POINTS)), beyond)

    def _passed(self, span: Span, by: str, keys: list[str] | None = None) -> list[Data]:
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

    def _outcomes(self, span: Span) -> list[Data]:
        """Questions of each outcome: points [middle round, questions]."""
        series: dict[str, list[list[float]]] = {what: [] for what in ("right", "wrong", "lapsed", "void")}
        for what, place, _, n in self._counted(span, "outcome", "true", {}):
            series[what].append([(place + 0.5) * span.rounds - 0.5, n])
        return [{"name": name, "points": points} for name, points in series.items()]

    def _counted(self, span: Span, by: str, chosen: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        sql = COUNTED.format(what=WHAT[by], right=RIGHT, joined=FROM, chosen=chosen)
        bounds = {"rounds": span.rounds, "last": span.last, "most": 200 if by == "task" else CURVES}
        return self._rows(sql, {**values, **bounds})

    def _once(self, what: Any, make: Callable[[], T]) -> T:
        """What `make` gives, kept until there is something new; one at a time."""
        with self._lock:
            if what not in self._kept:
                began = time.monotonic()
                try:
                    self._kept[what] = make()
                except (UserError, sqlite3.Error, TypeError, ValueError, AttributeError, ArithmeticError) as error:
                    raise BusyError(f"the judge's records cannot be read: {error}"[:NAME]) from error
                self._spent += time.monotonic() - began
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            found: T = self._kept[what]
            return found


def _name(by: str, what: str) -> str:
    if by == "node":
        return name_of(bytes.fromhex(what))
    if by == "task":
        return what[:NAME]
    in_swarm, _, model = what.partition("/")
    return f"{'swarm' if in_swarm == '1' else 'alone'}: {model[:NAME] or 'no model named'}"


def judge_id(where: str) -> str:
    """The id of a source, by its folder or address."""
    return hashlib.sha256(f"judge {where}".encode()).hexdigest()[:12]


def judge_summary(board: list[Data], totals: dict[str, int]) -> Data:
    """What the page shows of any judge. `totals`: questions by outcome."""
    return {"views": ["judge"], "nodes": [], "board": board, "totals": totals, "failures": [], "refused": {}}
