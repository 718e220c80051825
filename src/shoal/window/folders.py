"""Folders of runs as sources. A folder that holds others (`runs/`, a study) is as many sources as it has runs."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shoal.errors import UserError
from shoal.folder import CHECKPOINTS, CONFIG, LEARNED, METRICS, ROLLOUTS
from shoal.status import STATUS
from shoal.window.explorer import Explorer
from shoal.window.series import Metrics
from shoal.window.source import (
    EDGES,
    CurveQuery,
    Data,
    GraphQuery,
    MissingError,
    RolloutQuery,
    RowQuery,
    Source,
    TaskQuery,
    TextQuery,
    brief_of,
)
from shoal.window.standing import pulled, standing, swarm
from shoal.window.tables import Tables, parquet

DEPTH, RUNS = 6, 500
"""How deep folders are looked through for runs, and how many are taken."""
LIVE = 30.0
"""Seconds after the last line of a run for which it counts as going on."""
SEARCH = 5.0
"""Seconds between two looks for new runs."""
VIEWS = ("progress", "swarm", "rollouts", "machine")
SMALL = 1 << 20
"""Bytes of a status or settings that are read."""


class FolderSource:
    """The run in a folder; that of a joined node has its swarm's status too."""

    def __init__(self, path: Path, title: str) -> None:
        self.path = path
        self.title = title
        self.id = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
        self.version = 0
        self.opened = False
        self._metrics = Metrics(path / METRICS)
        self._tables = Tables(path)
        self._explorer = Explorer(self._tables)
        self._mark: Any = None
        self._kept: dict[str, tuple[Any, Any]] = {}

    @property
    def kind(self) -> str:
        return "node" if (self.path / STATUS).is_file() else "run"

    def look(self) -> None:
        """Read what is new of the metrics, once somebody has asked for this run."""
        if not self.opened:
            return
        self._metrics.look()
        mark = (self._metrics.version, _changed(self.path / STATUS), self._tables.mark(ROLLOUTS)[-1:])
        if mark != self._mark:
            self._mark = mark
            self.version += 1

    def brief(self) -> Data:
        changed = _changed(self.path / METRICS) or _changed(self.path / CONFIG)
        return brief_of(self, changed, LIVE)

    def summary(self) -> Data:
        self._open()
        status = _json(self.path / STATUS)
        return {
            **self.brief(),
            "views": VIEWS,
            **standing(self._metrics),
            "version": self.version,
            "pulled": pulled(self._metrics),
            "swarm": swarm(status, time.time()) if status else None,
            "attack": _attack(self.path / CONFIG),
            **self._counted(),
        }

    def curve(self, query: CurveQuery) -> Data:
        self._open()
        return self._metrics.curve(query.metric, query.by, query.points, query.smooth)

    def tasks(self, query: TaskQuery) -> Data:
        """A curve for each task."""
        self._open()
        prefix = "eval/pass@1/"
        names = sorted(key.removeprefix(prefix) for key in set(self._metrics.keys) if key.startswith(prefix))
        series = []
        for name in names[:200]:
            curve = self._metrics.curve(prefix + name, "mean", query.points, query.smooth, query.node)
            series += [{"name": name, "points": each["points"]} for each in curve["series"]]
        return {"series": series}

    def graph(self, query: GraphQuery) -> Data:
        """Edges from makers to learners, the heaviest first: rollouts, how many were live, their mean reward."""
        parts = self._tables.parts(LEARNED)
        if not parts:
            return {"edges": [], "more": False}
        files = parquet(parts.values())
        recent = f"AND round > (SELECT max(round) - $rounds FROM {files})" if query.rounds else ""
        edges = self._tables.rows(
            "SELECT maker, node, count(*) AS rollouts, count_if(live) AS live, avg(mean_reward) AS reward "
            f'FROM {files} WHERE "foreign" {recent} GROUP BY ALL ORDER BY rollouts DESC, maker, node LIMIT {EDGES + 1}',
            {"rounds": query.rounds} if query.rounds else {},
        )
        return {"edges": edges[:EDGES], "more": len(edges) > EDGES}

    def rollouts(self, query: RolloutQuery) -> Data:
        return self._explorer.page(query)

    def rollout(self, query: RowQuery) -> Data:
        return self._explorer.whole(query)

    def text(self, query: TextQuery) -> Data:
        return self._explorer.text(query)

    def close(self) -> None:
        self._tables.close()

    def _open(self) -> None:
        if not self.opened:
            self.opened = True
            self.look()

    def _counted(self) -> Data:
        """Of the rollouts: how many completions, by task and maker."""
        mark = self._tables.mark(ROLLOUTS)
        if "counts" not in self._kept or self._kept["counts"][0] != mark:
            files = parquet(self._tables.parts(ROLLOUTS).values())
            figures = "task, node, count(*) AS completions, avg(reward) AS reward"
            sql = f"SELECT {figures} FROM {files} GROUP BY ALL LIMIT 5000"
            self._kept["counts"] = (mark, self._tables.rows(sql) if mark else [])
        rows = self._kept["counts"][1]
        tasks: dict[str, list[float]] = {}
        for row in rows:
            total = tasks.setdefault(row["task"] or "", [0, 0.0])
            total[0] += row["completions"]
            total[1] += row["completions"] * (row["reward"] or 0.0)
        return {
            "completions": sum(row["completions"] for row in rows),
            "makers": sorted({row["node"] for row in rows if row["node"]})[:2000],
            "tasks": [
                {"name": name, "completions": count, "reward": total / count}
                for name, (count, total) in sorted(tasks.items())
            ],
        }


class Folders:
    """The runs in some folders, and those that come to be there."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        self._lock = threading.Lock()
        self._sources: dict[Path, FolderSource] = {}
        self._next = 0.0
        self._search()

    def all(self) -> list[Source]:
        """Those whose metrics changed last, first."""
        with self._lock:
            sources = list(self._sources.values())
        sources.sort(key=lambda source: (-round(_changed(source.path / METRICS) / 60), source.title))
        return list(sources)

    def get(self, id: str) -> Source:
        with self._lock:
            for source in self._sources.values():
                if source.id == id:
                    return source
        raise MissingError("there is no such run")

    def look(self) -> None:
        if time.monotonic() >= self._next:
            self._search()
        with self._lock:
            sources = list(self._sources.values())
        for source in sources:
            source.look()

    def close(self) -> None:
        """Have DuckDB let go of what it holds."""
        with self._lock:
            for source in self._sources.values():
                source.close()

    def _search(self) -> None:
        self._next = time.monotonic() + SEARCH
        found = {run: title for path in self._paths for run, title in _runs(path)}
        with self._lock:
            for run, title in list(found.items())[:RUNS]:
                if run not in self._sources:
                    self._sources[run] = FolderSource(run, title)


def open_folders(paths: Sequence[Path]) -> Folders:
    """The runs in `paths`; without any, the newest under `runs/`. Raises `UserError`."""
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path} is not a folder")
    return Folders(paths or [newest()])


def newest() -> Path:
    """The run under `runs/` that wrote its metrics last. Raises `UserError` if there is none."""
    found = [path for path in Path("runs").glob("*") if is_run(path)]
    if not found:
        raise UserError("there is no run in runs/: `shoal run` makes one; give a run's folder otherwise")
    return max(found, key=lambda path: _changed(path / METRICS) or _changed(path / CONFIG))


def is_run(path: Path) -> bool:
    return any((path / name).exists() for name in (METRICS, CONFIG, STATUS))


def _runs(path: Path) -> Iterator[tuple[Path, str]]:
    """Runs in `path` and their titles: its own name, or theirs within it."""
    if is_run(path):
        yield path, path.resolve().name
        return
    base = len(path.parts)
    for folder, names, _ in os.walk(path):
        here = Path(folder)
        names[:] = sorted(name for name in names if name != CHECKPOINTS and not name.startswith("."))
        if is_run(here):
            names.clear()
            yield here, str(here.relative_to(path))
        elif len(here.parts) - base >= DEPTH:
            names.clear()


def _changed(path: Path) -> float:
    """When it was written last, seconds since 1970; 0 if it is not there."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _json(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            value = json.loads(file.read(SMALL))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _attack(path: Path) -> Data | None:
    """What the hostile nodes of an experiment do, and how many there are."""
    try:
        with path.open("rb") as file:
            settings = tomllib.loads(file.read(SMALL).decode())
    except (OSError, ValueError, RecursionError):
        return None
    experiment = settings.get("experiment")
    if not isinstance(experiment, dict) or not experiment.get("adversaries"):
        return None
    return {"kind": str(experiment.get("attack", "planted"))[:40], "nodes": int(experiment["adversaries"])}
