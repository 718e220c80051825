"""What `shoal watch` shows of a judge: its data folder, also while it serves (`remote`: a judge at an address)."""

import hashlib
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from shoal.errors import UserError
from shoal_host.judge.records import FILE
from shoal_host.judge.reports import leaderboard_of
from shoal_host.judge.tally import CURVES, PATIENCE, Span, Tally
from shoal_web.watch.files import changed
from shoal_web.watch.source import NAME, BusyError, CurveQuery, Data, MissingError, Source, TaskQuery

POINT: Final = 25
"""Rounds to a point of a curve, unless the page says otherwise."""
ROWS: Final = 500
"""Of the leaderboard."""
KEPT: Final = 64
"""Answers that are kept until the records have changed."""
T = TypeVar("T")


class JudgeSource(Source):
    """The records in a judge's folder. Raises `UserError` if they cannot be read."""

    kind = "judge"
    live_for = 120.0

    def __init__(self, folder: Path) -> None:
        self.title = f"judge: {folder.resolve().name}"
        self.id = judge_id(str(folder.resolve()))
        self._path = folder / FILE
        self._tally = Tally(self._path)
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, Any] = OrderedDict()
        self._mark = self.changed()
        self._spent = self._due = 0.0
        try:
            self._tally.totals()
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
        totals, failures = self._once("totals", self._tally.totals), self._once("failures", self._tally.failures)
        return {**self.brief(), **judge_summary(self._board(), totals), "curves": True, "failures": failures}

    def curve(self, query: CurveQuery) -> Data:
        """`pass@1`, `smooth` rounds to a point, of each model inside and outside of swarms, or (`by` node) of the
        nodes at the top of the leaderboard; or `outcomes`, counted."""
        span = self._span(query.smooth)
        if query.metric == "outcomes":
            series = self._once((query.metric, span), lambda: self._tally.outcomes(span))
        elif query.metric == "pass@1" and query.by == "node":
            keys = list(dict.fromkeys(row["key"] for row in self._board()))[:CURVES]
            series = self._once(("nodes", span), lambda: self._tally.passed(span, "node", keys))
        elif query.metric == "pass@1":
            series = self._once(("sides", span), lambda: self._tally.passed(span, "side"))
        else:
            raise MissingError("a judge has the curves pass@1 and outcomes")
        return {"rounds_per_point": span.rounds, "beyond": span.beyond, "series": series}

    def tasks(self, query: TaskQuery) -> Data:
        """pass@1 of each task, of all nodes or of the one whose key is `node`."""
        if query.node is not None and query.node not in {row["key"] for row in self._board()}:
            raise MissingError("there is no such node")
        span, keys = self._span(query.smooth), [query.node] if query.node else None
        return {"series": self._once(("tasks", span, query.node), lambda: self._tally.passed(span, "task", keys))}

    def _board(self) -> list[Data]:
        return self._once("board", lambda: leaderboard_of(self._path, ROWS, PATIENCE))

    def _span(self, rounds: int) -> Span:
        rounds = rounds or POINT
        return self._once(("span", rounds), lambda: self._tally.span(rounds))

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


def judge_id(where: str) -> str:
    """The id of a source, by its folder or address."""
    return hashlib.sha256(f"judge {where}".encode()).hexdigest()[:12]


def judge_summary(board: list[Data], totals: dict[str, int]) -> Data:
    """What the page shows of any judge. `totals`: questions by outcome."""
    return {"views": ["judge"], "nodes": [], "board": board, "totals": totals, "failures": [], "refused": {}}
