"""A judge as a source: its data folder, also while it serves, or its address."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from shoal.apps.judge.records import FILE
from shoal.apps.judge.reports import leaderboard_of
from shoal.apps.watch.reader import PATIENCE
from shoal.apps.watch.source import (
    NAME,
    CurveQuery,
    Data,
    GraphQuery,
    MissingError,
    TaskQuery,
    WithoutRollouts,
    brief_of,
)
from shoal.apps.watch.tables import BusyError
from shoal.apps.watch.tally import CURVES, Span, Tally
from shoal.errors import UserError

ROWS: Final = 500
"""Of the leaderboard."""
KEPT: Final = 64
"""Answers that are kept until the records have changed."""
LIVE: Final = 120.0
"""Seconds after its last record for which a judge counts as going on."""
WINDOW: Final = 25
"""Rounds of a window, where none is asked for."""
T = TypeVar("T")


class JudgeSource(WithoutRollouts):
    """The records in a judge's folder. Raises `UserError` if they cannot be read."""

    kind = "judge"

    def __init__(self, folder: Path) -> None:
        self.title = f"judge: {folder.resolve().name}"
        self.id = judge_id(str(folder.resolve()))
        self.version = 0
        self._path = folder / FILE
        self._tally = Tally(self._path)
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, Any] = OrderedDict()
        self._mark = self._changed()
        self._spent = self._due = 0.0
        try:
            self._tally.totals()
        except (BusyError, OSError) as error:
            raise UserError(f"cannot read the judge's records in {folder}: {error}") from None

    def look(self) -> None:
        """However long it takes to count, it is done a twentieth of the time at most."""
        mark = self._changed()
        if mark == self._mark or time.monotonic() < self._due or not self._lock.acquire(blocking=False):
            return
        self._mark = mark
        self._kept.clear()
        self._due, self._spent = time.monotonic() + max(1.0, 20 * self._spent), 0.0
        self.version += 1
        self._lock.release()

    def brief(self) -> Data:
        return brief_of(self, self._changed(), LIVE)

    def summary(self) -> Data:
        """The leaderboard, and how questions ended."""
        self.look()
        return {
            **self.brief(),
            **judge_summary(self._board(), self._once("totals", self._tally.totals)),
            "version": self.version,
            "curves": True,
            "failures": self._once("failures", self._tally.failures),
        }

    def curve(self, query: CurveQuery) -> Data:
        """`pass@1` by windows of `smooth` rounds, of each model inside and outside of swarms, or (`by` node) of the
        first of the leaderboard; or `outcomes`, counted."""
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
        return {"metric": query.metric, "rounds_per_point": span.window, "beyond": span.beyond, "series": series}

    def tasks(self, query: TaskQuery) -> Data:
        """pass@1 of each task, of all nodes or of the one whose key `node` is."""
        if query.node is not None and query.node not in {row["key"] for row in self._board()}:
            raise MissingError("there is no such node")
        span, keys = self._span(query.smooth), [query.node] if query.node else None
        series = self._once(("tasks", span, query.node), lambda: self._tally.passed(span, "task", keys))
        return {"rounds_per_point": span.window, "series": series}

    def graph(self, query: GraphQuery) -> Data:
        raise MissingError("a judge does not know who learns from whom")

    def _board(self) -> list[Data]:
        return self._once("board", lambda: leaderboard_of(self._path, ROWS, PATIENCE))

    def _span(self, window: int) -> Span:
        window = window or WINDOW
        return self._once(("span", window), lambda: self._tally.span(window))

    def _once(self, what: Any, make: Callable[[], T]) -> T:
        """What `make` gives, kept until there is something new; one at a time."""
        with self._lock:
            if what not in self._kept:
                began = time.monotonic()
                try:
                    self._kept[what] = make()
                except (sqlite3.Error, TypeError, ValueError, AttributeError, ArithmeticError) as error:
                    raise BusyError(f"the judge's records cannot be read: {error}"[:NAME]) from error
                self._spent += time.monotonic() - began
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            found: T = self._kept[what]
            return found

    def _changed(self) -> float:
        """When something was written last, seconds since 1970; 0 if nothing is there."""
        changed = 0.0
        for path in (self._path, self._path.with_name(f"{FILE}-wal")):
            try:
                changed = max(changed, path.stat().st_mtime)
            except OSError:
                continue
        return changed


def judge_id(where: str) -> str:
    """Of a source, by its folder or address."""
    return hashlib.sha256(f"judge {where}".encode()).hexdigest()[:12]


def judge_summary(board: list[Data], totals: dict[str, int]) -> Data:
    """What the page shows of any judge. `totals`: outcome and count."""
    return {"views": ["judge"], "nodes": [], "board": board, "totals": totals, "failures": [], "refused": {}}
