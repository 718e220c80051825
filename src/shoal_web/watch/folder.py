"""The folder of a run as a source: its settings, metrics, tables, and the state of a joined node's swarm."""

import hashlib
import os
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from shoal.config.load import ignored
from shoal.errors import UserError
from shoal.runs.folder import CONFIG, METRICS, STATUS, WARNINGS, read_warnings
from shoal.runs.tables import ROLLOUTS, TRANSCRIPTS
from shoal.untrusted import open_regular, parse_toml
from shoal_web.watch.explorer import Explorer
from shoal_web.watch.learned import Lessons
from shoal_web.watch.metrics import Metrics
from shoal_web.watch.nodes import live_seconds, node_lines, seconds_left, standing, swarm_state
from shoal_web.watch.source import NAME, BusyError, CurveQuery, Data, Parameters, Source, changed
from shoal_web.watch.tables import Row, Tables

MOST_CONFIG: Final = 1 << 18  # bytes that are read of the settings
MOST_STATUS = 1 << 22  # bytes that are read of the status of a node


class FolderSource(Source):
    """The run in the folder `path`."""

    path: Path

    def __init__(self, path: Path, title: str) -> None:
        self.path = path
        self.title = title
        self.id = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:12]
        self.opened = 0.0
        """When a page asked for it last, by the monotonic clock; 0: not yet."""
        self._metrics = Metrics(path / METRICS)
        self._due = 0.0
        self._tables = Tables(path)
        explorer = Explorer(self._tables)
        self.rollouts, self.rollout = explorer.page, explorer.whole
        lessons = Lessons(self._tables)
        self.graph, self.story = lessons.graph, lessons.story
        self._mark: Any = None

    @property
    def kind(self) -> str:
        return "node" if changed(self.path / STATUS) else "run"

    def look(self) -> None:
        """Reads the metrics, once a page has asked for this run; at most a twentieth of the time, however many."""
        if not self.opened or time.monotonic() < self._due:
            return
        began = time.monotonic()
        self._metrics.look()
        self._due = began + 20 * (time.monotonic() - began)
        files = changed(self.path / STATUS), changed(self.path / WARNINGS)
        tables = self._tables.mark(ROLLOUTS)[-1:], self._tables.mark(TRANSCRIPTS)[-1:]
        mark = (self._metrics.version, files, tables)
        if mark != self._mark:
            self._mark = mark
            swarm, _ = self._swarm()
            self.live_for = 0.0 if swarm and swarm["ended"] else live_seconds(self._metrics, self._rounds())
            self.version += 1

    def changed(self) -> float:
        return changed(self.path / METRICS) or changed(self.path / CONFIG)

    def summary(self) -> Data:
        self._open()
        swarm, no_status = self._swarm()
        try:
            counts, trouble = self._counts(), ""
        except BusyError as error:
            counts, trouble = [], str(error)
        try:
            warnings = read_warnings(self.path)  # what the run itself says is wrong
        except UserError:
            warnings = [f"{WARNINGS} cannot be read"]
        link = swarm["warning"] if swarm and swarm["running"] else ""
        of_rounds, old = told_by(read_text(self.path))
        wrong = [*warnings, old, link, self._metrics.trouble, trouble, self._tables.trouble, no_status]
        wrong = list(dict.fromkeys(filter(None, wrong)))  # each once
        brief, lines = self.brief(), node_lines(self._metrics)
        return {
            **brief,
            "views": ("progress", "learned", "ask", "swarm", "rollouts", "settings"),
            "rounds": self._metrics.last_round(),
            "of_rounds": of_rounds,
            "left": seconds_left(self._metrics, of_rounds) if brief["live"] else None,
            "nodes": lines,
            "standing": standing(self._metrics, lines),
            "metrics": sorted(self._metrics.keys - {"time"}),
            "swarm": swarm,
            "warnings": wrong,
            "trouble": "\n".join(wrong),
            "completions": sum(row["completions"] for row in counts),
            "makers": sorted({row["node"] for row in counts if row["node"]})[:2000],
            "tasks": sorted({row["task"] or "" for row in counts}),
        }

    def curve(self, query: CurveQuery) -> Data:
        self._open()
        return self._metrics.curve(query)

    def settings(self, query: Parameters) -> Data:
        """The text of the settings' file."""
        return {"settings": read_text(self.path)}

    def close(self) -> None:
        """Forgets what was read; it is read again when a page asks."""
        self.opened = self._due = 0.0
        self._metrics = Metrics(self.path / METRICS)
        self._tables.close()

    def _open(self) -> None:
        first, self.opened = not self.opened, time.monotonic()
        if first:
            self.look()

    def _rounds(self) -> int | None:
        return told_by(read_text(self.path))[0]

    def _swarm(self) -> tuple[Data | None, str]:
        """The state of the swarm of a joined node, and why it cannot be read."""
        try:
            with open_regular(self.path / STATUS, follow_links=False) as file:
                return swarm_state(file.read(MOST_STATUS), time.time()), ""
        except FileNotFoundError:
            return None, ""
        except OSError as error:
            return None, f"{STATUS} cannot be read: {error.strerror or error}"
        except (ValueError, RecursionError) as error:
            return None, f"{STATUS} is not the status of a node: {error}"[:NAME]

    def _counts(self) -> list[Row]:
        """The completions of each task and maker. Raises `BusyError`."""
        if not self._tables.parts(ROLLOUTS):
            return []  # without a process
        figures = f"left(task, {NAME}) AS task, left(node, {NAME}) AS node, count(*) AS completions"
        return self._tables.rows(f"SELECT {figures} FROM {self._tables.all(ROLLOUTS)} GROUP BY ALL LIMIT 5000")


def read_text(folder: Path) -> str:
    """What `config.toml` says, whatever that is; nothing if there is none to read."""
    try:
        with open_regular(folder / CONFIG, follow_links=False) as file:
            return file.read(MOST_CONFIG).decode(errors="replace")
    except OSError:
        return ""


@lru_cache(16)
def told_by(text: str) -> tuple[int | None, str]:
    """How many rounds settings name, and what of them is ignored. A page asks often, and a file may take a second."""
    try:
        settings = parse_toml(text.encode())
    except ValueError:
        return None, ""
    rounds = settings.get("rounds")
    return rounds if isinstance(rounds, int) else None, ignored(settings)
