"""Folders of runs as sources. A folder that holds others (`runs/`, a study) is as many sources as it has runs."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from shoal.apps.watch.explorer import Explorer
from shoal.apps.watch.files import opened, state_of
from shoal.apps.watch.series import Metrics
from shoal.apps.watch.source import (
    EDGES,
    NAME,
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
from shoal.apps.watch.standing import pulled, standing, swarm
from shoal.apps.watch.tables import BusyError, Row, Tables, parquet
from shoal.errors import UserError
from shoal.runs.folder import CHECKPOINTS, CONFIG, METRICS
from shoal.runs.swarm_status import STATUS
from shoal.runs.tables import LEARNED, ROLLOUTS

DEPTH, RUNS = 6, 500
"""How deep folders are looked through for runs, and how many are taken."""
LIVE = 30.0
"""Seconds after the last line of a run for which it counts as going on."""
SEARCH = 5.0
"""Seconds between two looks for new runs."""
VIEWS = ("progress", "swarm", "rollouts", "machine")
LOOKED, OPENED = 20_000, 16
"""Entries of folders that one search looks at, and runs whose figures are kept in memory: those opened last."""
OPENING = 10.0
"""Seconds for which a run is read when it is opened; the rest of a longer one comes with the next looks."""
SMALL = 1 << 18
"""Bytes of a status or settings that are read."""


class FolderSource:
    """The run in a folder; that of a joined node has its swarm's status too."""

    def __init__(self, path: Path, title: str) -> None:
        self.path = path
        self.title = title
        self.id = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:12]
        self.version = 0
        self.opened = 0.0
        """When it was asked for last, by the monotonic clock; 0: not yet."""
        self._metrics = Metrics(path / METRICS)
        self._tables = Tables(path)
        self._explorer = Explorer(self._tables)
        self._mark: Any = None
        self._counts: tuple[Any, list[Row], str] | None = None

    @property
    def kind(self) -> str:
        return "node" if _changed(self.path / STATUS) else "run"

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
        counted, trouble = self._counted()
        with self._metrics.lock:
            figures = {**standing(self._metrics), "pulled": pulled(self._metrics)}
        return {
            **self.brief(),
            "views": VIEWS,
            **figures,
            "version": self.version,
            "swarm": swarm(status, time.time()) if status else None,
            "attack": _attack(self.path / CONFIG),
            "trouble": "; ".join(filter(None, (self._metrics.trouble, trouble, self._tables.trouble))),
            **counted,
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
            f"SELECT left(maker, {NAME}) AS maker, left(node, {NAME}) AS node, "
            "count(*) AS rollouts, count_if(live) AS live, avg(mean_reward) AS reward "
            f'FROM {files} WHERE "foreign" {recent} GROUP BY 1, 2 ORDER BY rollouts DESC, 1, 2 LIMIT {EDGES + 1}',
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
        """Forgets all that was read; who asks again has it read again."""
        self.opened = 0.0
        self._metrics = Metrics(self.path / METRICS)
        self._tables.close()

    def _open(self) -> None:
        first, self.opened = not self.opened, time.monotonic()
        if first:
            self._metrics.look(OPENING)
            self.look()

    def _counted(self) -> tuple[Data, str]:
        """Of the rollouts: how many completions, by task and maker. And why that is not known, where it is not."""
        mark = self._tables.mark(ROLLOUTS)
        if self._counts is None or self._counts[0] != mark:
            try:
                self._counts = (mark, self._count(), "")
            except BusyError as error:
                self._counts = (mark, [], str(error))
        _, rows, trouble = self._counts
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
        }, trouble

    def _count(self) -> list[Row]:
        parts = self._tables.parts(ROLLOUTS)
        if not parts:
            return []
        figures = (
            f"left(task, {NAME}) AS task, left(node, {NAME}) AS node, count(*) AS completions, avg(reward) AS reward"
        )
        return self._tables.rows(f"SELECT {figures} FROM {parquet(parts.values())} GROUP BY 1, 2 LIMIT 5000")


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
        opened = sorted((source for source in sources if source.opened), key=lambda source: -source.opened)
        for source in opened[OPENED:]:
            source.close()
        for source in opened[:OPENED]:
            source.look()

    def close(self) -> None:
        """Have DuckDB let go of what it holds."""
        with self._lock:
            for source in self._sources.values():
                source.close()

    def _search(self) -> None:
        began = time.monotonic()
        found = dict(itertools.islice((each for path in self._paths for each in _runs(path)), RUNS))
        with self._lock:
            gone = [self._sources.pop(run) for run in list(self._sources) if run not in found]
            for run, title in found.items():
                if run not in self._sources:
                    self._sources[run] = FolderSource(run, title)
        for source in gone:
            source.close()
        spent = time.monotonic() - began
        self._next = began + max(SEARCH, 20 * spent)  # however many there are, it is done a twentieth of the time


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
    return any(os.path.lexists(path / name) for name in (METRICS, CONFIG, STATUS))


def _runs(path: Path) -> Iterator[tuple[Path, str]]:
    """Runs in `path` and their titles: its own name, or theirs within it. Those that lie less deep come first, so that
    a folder that is full of folders hides none beside it; no link is followed."""
    if is_run(path):
        yield path, _shown(path.resolve().name)
        return
    level, looked = [path], 0
    for _ in range(DEPTH):
        below: list[Path] = []
        for folder in level:
            with suppress(OSError), os.scandir(folder) as entries:
                rest = sorted(itertools.islice(entries, max(0, LOOKED - looked)), key=lambda entry: entry.name)
                looked += len(rest)
                below += [
                    folder / entry.name
                    for entry in rest
                    if entry.name != CHECKPOINTS and not entry.name.startswith(".") and _is_folder(entry)
                ]
        level = [folder for folder in below if not is_run(folder)]
        runs = sorted(set(below).difference(level), key=lambda run: -_changed(run / METRICS))
        yield from ((run, _shown(str(run.relative_to(path)))) for run in runs)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _shown(name: str) -> str:
    """A name of a file, which can be any bytes, as text that a terminal and JSON can have."""
    plain = os.fsencode(name).decode(errors="replace")
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in plain)[-NAME:]


def _changed(path: Path) -> float:
    """When it was written last, seconds since 1970; 0 if it is no file."""
    try:
        return state_of(path).st_mtime
    except OSError:
        return 0.0


def _json(path: Path) -> dict[str, Any]:
    try:
        with opened(path) as file:
            value = json.loads(file.read(SMALL))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _attack(path: Path) -> Data | None:
    """What the hostile nodes of an experiment do, and how many there are."""
    try:
        with opened(path) as file:
            settings = tomllib.loads(file.read(SMALL).decode())
    except (OSError, ValueError, RecursionError):
        return None
    experiment = settings.get("experiment")
    nodes = experiment.get("adversaries") if isinstance(experiment, dict) else None
    if not isinstance(experiment, dict) or not isinstance(nodes, int) or not 0 < nodes < 2**53:
        return None
    return {"kind": str(experiment.get("attack", "planted"))[:40], "nodes": int(nodes)}
