"""The metrics of a run as columns, read as the file grows."""

from __future__ import annotations

import io
import math
import threading
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.apps.watch.files import opened, state_of
from shoal.apps.watch.source import NAME, Data

NODES, KEYS = 2000, 500
"""Nodes and keys that are kept."""
DRAWN = 200
"""Nodes that have a curve of their own."""
BLOCK = 4 << 20
"""Bytes that are read at a time."""
LINE = 1 << 20
"""Bytes of the longest line that is taken."""
CELLS = 16 << 20
"""Figures that are kept of a run; of more, the older half is dropped."""
FURTHEST = 2.0**53
"""The last round there can be."""
LOOK = 1.0
"""Seconds for which one look reads."""

Floats = npt.NDArray[np.float64]


class Node:
    """The figures of one node: for each key a column as long as `rounds`, NaN where there is none."""

    def __init__(self) -> None:
        self.rounds = array("d")
        self.columns: dict[str, array[float]] = {}

    def add(self, round: float, figures: dict[str, float]) -> None:
        for key, value in figures.items():
            if key not in self.columns:
                self.columns[key] = array("d", [math.nan]) * len(self.rounds)
            self.columns[key].append(value)
        self.rounds.append(round)
        for column in self.columns.values():
            if len(column) < len(self.rounds):
                column.append(math.nan)

    def cells(self) -> int:
        return len(self.rounds) * (1 + len(self.columns))

    def drop_older(self) -> None:
        """Drops the first half of the rounds, and figures that no later round has."""
        half = len(self.rounds) // 2
        del self.rounds[:half]
        for key, column in list(self.columns.items()):
            del column[:half]
            if not any(map(math.isfinite, column)):
                del self.columns[key]

    def known(self, key: str) -> tuple[Floats, Floats]:
        """Rounds and values where the figure is known."""
        column = self.columns.get(key)
        if column is None:
            return np.empty(0), np.empty(0)
        values = np.array(column)  # copies: an array that lends its memory cannot grow
        there = np.isfinite(values)
        return np.array(self.rounds)[there], values[there]


class Metrics:
    """`metrics.jsonl`, which another process appends to, and replaces when a run is resumed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lock = threading.RLock()
        """Held while the file is read. Hold it to get several figures that belong together."""
        self.version = 0
        self._wrong = ""
        self._clear()

    @property
    def trouble(self) -> str:
        """What of the file cannot be read or is left out, or nothing."""
        return "; ".join(f"{self._path.name} {what}" for what in (self._wrong, self._left_out) if what)

    def _clear(self) -> None:
        self._identity: tuple[int, int] | None = None
        self._offset = self._cells = 0
        self._left_out = ""
        self.nodes: dict[str, Node] = {}
        self.keys: set[str] = set()

    def look(self, seconds: float = LOOK) -> None:
        """Reads what is new, for at most so many seconds; the next look goes on. Nothing if another thread reads."""
        if not self.lock.acquire(blocking=False):
            return
        try:
            self._wrong = ""
            self._look(time.monotonic() + seconds)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._wrong = f"cannot be read: {error.strerror or error}"
        finally:
            self.lock.release()

    def _look(self, end: float) -> None:
        at = state_of(self._path)
        identity = (at.st_dev, at.st_ino)
        if identity != self._identity or at.st_size < self._offset:
            self._clear()
            self._identity = identity
            self.version += 1
        while self._offset < at.st_size and self._read(at.st_size) and time.monotonic() <= end:
            continue

    def _read(self, size: int) -> bool:
        """Whether there was something to read before `size`, the end of the file."""
        with opened(self._path) as file:
            file.seek(self._offset)
            block = file.read(BLOCK)
        end = block.rfind(b"\n") + 1
        if not end:  # a line that is still being written, or an endless one
            if len(block) == BLOCK:
                self._offset, self._left_out = size, "has a line without end: what follows is left out"
            return False
        self._offset += end
        self.version += 1
        for line in io.BytesIO(block[:end]):
            if 1 < len(line) <= LINE:
                try:
                    self._take(msgspec.json.decode(line))
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    continue
        return True

    def _take(self, row: Any) -> None:
        if not isinstance(row, dict) or not isinstance(row.get("node"), str):
            return
        if not _is_number(row.get("round")) or not 0 <= row["round"] <= FURTHEST:
            return
        name = row["node"][:NAME]
        if name not in self.nodes and len(self.nodes) >= NODES:
            return
        figures: dict[str, float] = {}
        for key, value in row.items():
            if not _is_number(value) or key == "round" or len(key) > NAME:
                continue
            if key in self.keys or len(self.keys) < KEYS:
                self.keys.add(key)
                figures[key] = float(value)
        node = self.nodes.setdefault(name, Node())
        before = node.cells()
        node.add(float(row["round"]), figures)
        self._cells += node.cells() - before
        if self._cells > CELLS:
            self._left_out = "has too many figures: its last part is shown"
            for each in self.nodes.values():
                each.drop_older()
            self._cells = sum(each.cells() for each in self.nodes.values())

    def last_round(self) -> int:
        return int(max((max(node.rounds) for node in self.nodes.values() if node.rounds), default=0))

    def curve(self, key: str, by: str, points: int, smooth: int = 0, node: str | None = None) -> Data:
        """The figure against rounds, in at most `points` means over adjacent rounds.

        `by`: "node" for a curve of each node, "mean" for the mean over the nodes that have it in a round, or over
        `node` alone.
        """
        with self.lock:
            chosen = {name: each.known(key) for name, each in self.nodes.items() if node in (None, name)}
            last = self.last_round()
        known = {name: (rounds, trailing(values, smooth)) for name, (rounds, values) in chosen.items() if len(rounds)}
        if by == "mean" and known:
            known = {"mean": _mean(list(known.values()))}
        width = max(1, math.ceil((last + 1) / points))
        if width > 1:
            known = {name: binned(*each, width) for name, each in known.items()}
        return {"series": [{"name": name, "points": points_of(*each)} for name, each in list(known.items())[:DRAWN]]}


def _mean(curves: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    rounds = np.concatenate([rounds for rounds, _ in curves])
    values = np.concatenate([values for _, values in curves])
    distinct, places = np.unique(rounds, return_inverse=True)
    return distinct, np.bincount(places, values) / np.bincount(places)


def trailing(values: Floats, width: int) -> Floats:
    """Means over the last `width` values, fewer at the start."""
    if width < 2 or not len(values):
        return values
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - width)
    means: Floats = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def binned(at: Floats, values: Floats, width: float) -> tuple[Floats, Floats]:
    """Mean place and mean value in each interval of `width` that has any."""
    _, places = np.unique(at // width, return_inverse=True)
    counts = np.bincount(places)
    return np.bincount(places, at) / counts, np.bincount(places, values) / counts


def points_of(at: Floats, values: Floats, digits: int = 1) -> list[list[float]]:
    """A curve's points for JSON, rounded."""
    return [[round(float(x), digits), float(f"{y:.5g}")] for x, y in zip(at, values, strict=True)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
