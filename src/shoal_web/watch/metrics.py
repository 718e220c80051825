"""The metrics of a run, read whole whenever the file has changed, and curves over them."""

import math
import os
import threading
from array import array
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.untrusted import open_regular
from shoal_web.watch.source import NAME, CurveQuery, Data

NODES, KEYS = 2000, 500  # nodes and keys that are kept
DRAWN = 200  # nodes that have a curve of their own
BYTES = 64 << 20
"""Bytes of the file that are read: its end. A figure takes at least six of them, and sixteen in memory."""
LINE = 1 << 20  # bytes of the longest line that is taken
FURTHEST = 2.0**53  # the last round there can be

Floats = npt.NDArray[np.float64]
Curve = tuple[Floats, Floats]
"""Places, such as rounds, and the values there."""


class Node:
    """The figures of one node."""

    def __init__(self) -> None:
        self.round = 0
        """The last one."""
        self.courses: dict[str, array[float]] = {}
        """Rounds and values by turns."""

    def known(self, key: str) -> Curve:
        """Rounds and values where the figure is known."""
        at, values = np.array(self.courses.get(key, ())).reshape(-1, 2).T
        return at, values


class Metrics:
    """`metrics.jsonl`, which another process appends to, and replaces when a run is resumed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._mark: tuple[int, ...] = ()
        self.version = 0
        self.trouble = ""
        """Why the file cannot be read, or what of it is left out."""
        self.nodes: dict[str, Node] = {}
        self.keys: set[str] = set()

    def look(self) -> None:
        """Reads the file if it has changed."""
        with self._lock:
            try:
                self._read()
            except OSError as error:
                if not isinstance(error, FileNotFoundError):
                    self.trouble = f"{self._path.name} cannot be read: {error.strerror or error}"

    def _read(self) -> None:
        with open_regular(self._path, follow_links=False) as file:
            state, before = os.fstat(file.fileno()), self._mark
            size = state.st_size
            self._mark = (state.st_dev, state.st_ino, state.st_mtime_ns, size)
            if self._mark == before:
                return
            file.seek(max(0, size - BYTES))
            nodes: dict[str, Node] = {}
            keys: set[str] = set()
            while line := file.readline(LINE):
                if line.endswith(b"\n"):  # or it is still being written, or endless
                    _take(line, nodes, keys)
        self.nodes, self.keys = nodes, keys
        self.trouble = f"{self._path.name} is too large: its end is shown" if size > BYTES else ""
        self.version += 1

    def last_round(self) -> int:
        return max((node.round for node in self.nodes.values()), default=0)

    def curve(self, query: CurveQuery) -> Data:
        """The figure against rounds: of each node, the mean over the nodes that have it in a round, or that of each
        figure below it (`eval/pass@1/gcd`). What is aggregated is smoothed, and then thinned to
        `points` means over adjacent rounds: so a mean lies among its lines."""
        if query.by == "node":
            known = dict(list(self._known(query.metric, query).items())[:DRAWN])
        else:
            below = sorted(key for key in self.keys if key.startswith(f"{query.metric}/"))[:DRAWN]
            keys = {key.removeprefix(f"{query.metric}/"): key for key in below}
            keys = keys if query.by == "task" else {"mean": query.metric}
            known = {name: self._mean(key, query) for name, key in keys.items()}
        width = max(1, math.ceil((self.last_round() + 1) / query.points))
        smooth = {name: (at, trailing(values, query.smooth)) for name, (at, values) in known.items() if len(at)}
        curves = {name: binned(*curve, width) for name, curve in smooth.items()}
        series = [
            {"name": name, "points": [[round(float(x), 1), float(f"{y:.5g}")] for x, y in zip(*curve, strict=True)]}
            for name, curve in curves.items()
        ]
        return {"series": series}

    def _known(self, key: str, query: CurveQuery) -> dict[str, Curve]:
        """The curve of each node that has the figure."""
        chosen = {name: each.known(key) for name, each in self.nodes.items() if query.node in (None, name)}
        return {name: curve for name, curve in chosen.items() if len(curve[0])}

    def _mean(self, key: str, query: CurveQuery) -> Curve:
        curves = [(np.empty(0), np.empty(0)), *self._known(key, query).values()]
        at, values = (np.concatenate(parts) for parts in zip(*curves, strict=True))
        return binned(at, values, 1)


def _take(line: bytes, nodes: dict[str, Node], keys: set[str]) -> None:
    """Adds the figures of one line; nothing for what is no line of metrics."""
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if not isinstance(row, dict) or not isinstance(row.get("node"), str):
        return
    name, round = row["node"][:NAME], row.pop("round", None)
    if not _is_number(round) or not 0 <= round <= FURTHEST or (name not in nodes and len(nodes) >= NODES):
        return
    node = nodes.setdefault(name, Node())
    node.round = max(node.round, int(round))
    for key, value in row.items():
        if _is_number(value) and len(key) <= NAME and (key in keys or len(keys) < KEYS):
            keys.add(key)
            node.courses.setdefault(key, array("d")).extend((round, value))


def trailing(values: Floats, width: int) -> Floats:
    """Means over the last `width` values, fewer at the start."""
    if width < 2 or not len(values):
        return values
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - width)
    means: Floats = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def binned(at: Floats, values: Floats, width: float) -> Curve:
    """Mean place and mean value in each interval of `width` that has any."""
    _, places = np.unique(at // width, return_inverse=True)
    counts = np.bincount(places)
    return np.bincount(places, at) / counts, np.bincount(places, values) / counts


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
