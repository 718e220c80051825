"""The folder of a run as a source; that of a joined node has the state of its swarm too."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

from shoal.apps.watch.explorer import Explorer
from shoal.apps.watch.files import changed, opened
from shoal.apps.watch.metrics import Metrics
from shoal.apps.watch.nodes import node_lines, swarm_state
from shoal.apps.watch.source import (
    EDGES,
    NAME,
    WHOLE,
    BusyError,
    CurveQuery,
    Data,
    GraphQuery,
    Source,
    TaskQuery,
    TranscriptQuery,
)
from shoal.apps.watch.tables import Row, Tables, parquet
from shoal.errors import UserError
from shoal.runs.folder import CONFIG, METRICS, STATUS, WARNINGS
from shoal.runs.run_warnings import read_warnings
from shoal.runs.tables import LEARNED, ROLLOUTS, TRANSCRIPTS
from shoal.runs.transcripts import ALL as KEPT
from shoal.untrusted import parse_toml

MOST_STATUS, MOST_SETTINGS = 1 << 22, 1 << 18
"""Bytes that are read of the status of a node, and of settings."""
BY_TASK = "eval/pass@1/"


class FolderSource(Source):
    """The run in the folder `path`."""

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
        self.rollouts, self.rollout, self.text = explorer.page, explorer.whole, explorer.text
        self._mark: Any = None
        self._counts: tuple[Any, list[Row], list[Row], str] | None = None

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
            self.version += 1

    def changed(self) -> float:
        return changed(self.path / METRICS) or changed(self.path / CONFIG)

    def summary(self) -> Data:
        self._open()
        swarm, no_status = self._swarm()
        mark = self._tables.mark(ROLLOUTS)
        if self._counts is None or self._counts[0] != mark:
            try:
                self._counts = (mark, self._count(), self._gradient_shares(), "")
            except BusyError as error:
                self._counts = (mark, [], [], str(error))
        _, counts, shares, trouble = self._counts
        return {
            **self.brief(),
            "views": ("progress", "swarm", "rollouts", "machine"),
            "rounds": self._metrics.last_round(),
            "nodes": node_lines(self._metrics),
            "metrics": sorted(self._metrics.keys - {"time"}),
            "gradient": shares,
            "swarm": swarm,
            "attack": _attack(self.path / CONFIG),
            "trouble": "\n".join(
                filter(None, (*self._warnings(), self._metrics.trouble, trouble, self._tables.trouble, no_status))
            ),
            "completions": sum(row["completions"] for row in counts),
            "makers": sorted({row["node"] for row in counts if row["node"]})[:2000],
            "tasks": sorted({row["task"] or "" for row in counts}),
        }

    def curve(self, query: CurveQuery) -> Data:
        self._open()
        return self._metrics.curve(query.metric, query.by, query.points, query.smooth)

    def tasks(self, query: TaskQuery) -> Data:
        """A curve for each task."""
        self._open()
        series = []
        for key in sorted(key for key in self._metrics.keys if key.startswith(BY_TASK))[:200]:
            curve = self._metrics.curve(key, "mean", query.points, query.smooth, query.node)
            series += [{"name": key.removeprefix(BY_TASK), "points": each["points"]} for each in curve["series"]]
        return {"series": series}

    def transcripts(self, query: TranscriptQuery) -> Data:
        """Each kept question with its answers in the node's first evaluation and, if there are several, in its last."""
        parts = self._tables.parts(TRANSCRIPTS)
        if not parts:
            return {"pairs": []}
        texts = ", ".join(f"left({name}, {WHOLE}) AS {name}" for name in ("task", "question", "completion"))
        rows = self._tables.rows(
            f"WITH own AS (SELECT round, reward, {texts} FROM {parquet(parts.values())} "
            f"WHERE left(node, {NAME}) = $node) "
            "SELECT * FROM own WHERE round IN ((SELECT min(round) FROM own), (SELECT max(round) FROM own)) "
            f"ORDER BY round LIMIT {2 * KEPT}",
            {"node": query.node},
        )
        found: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            found.setdefault((row.pop("task"), row.pop("question")), []).append(row)
        return {
            "pairs": [
                {
                    "task": task,
                    "question": question,
                    "before": answers[0],
                    "after": answers[-1] if answers[1:] else None,
                }
                for (task, question), answers in found.items()
            ]
        }

    def graph(self, query: GraphQuery) -> Data:
        """Arrows from makers to learners, the heaviest first: rollouts, how many were live, their mean reward."""
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

    def close(self) -> None:
        """Forgets what was read; it is read again when a page asks."""
        self.opened = self._due = 0.0
        self._metrics = Metrics(self.path / METRICS)
        self._tables.close()

    def _open(self) -> None:
        first, self.opened = not self.opened, time.monotonic()
        if first:
            self.look()

    def _swarm(self) -> tuple[Data | None, str]:
        """The state of the swarm of a joined node, and why it cannot be read."""
        try:
            with opened(self.path / STATUS) as file:
                return swarm_state(file.read(MOST_STATUS), time.time()), ""
        except FileNotFoundError:
            return None, ""
        except OSError as error:
            return None, f"{STATUS} cannot be read: {error.strerror or error}"
        except (ValueError, RecursionError) as error:
            return None, f"{STATUS} is not the status of a node: {error}"[:NAME]

    def _warnings(self) -> list[str]:
        """What the run itself says is wrong."""
        try:
            return read_warnings(self.path)
        except UserError:
            return [f"{WARNINGS} cannot be read"]

    def _gradient_shares(self) -> list[Row]:
        """Each other maker's share of each node's gradient: means over the node's rounds that had one."""
        parts = self._tables.parts(LEARNED)
        if not parts:
            return []
        files = parquet(parts.values())
        return self._tables.rows(
            f"WITH rounds AS "
            f"(SELECT node, count(DISTINCT round) AS n FROM {files} WHERE gradient_share > 0 GROUP BY 1) "
            f"SELECT left(l.node, {NAME}) AS node, left(maker, {NAME}) AS maker, sum(gradient_share) / any_value(n) AS "
            f'share FROM {files} l JOIN rounds USING (node) WHERE "foreign" GROUP BY 1, 2 HAVING share > 0 '
            "ORDER BY share DESC, 1, 2 LIMIT 1000"
        )

    def _count(self) -> list[Row]:
        """How many completions there are of each task and maker."""
        parts = self._tables.parts(ROLLOUTS)
        if not parts:
            return []
        figures = f"left(task, {NAME}) AS task, left(node, {NAME}) AS node, count(*) AS completions"
        return self._tables.rows(f"SELECT {figures} FROM {parquet(parts.values())} GROUP BY 1, 2 LIMIT 5000")


def _attack(path: Path) -> Data | None:
    """What the hostile nodes of an experiment do, and how many there are."""
    try:
        with opened(path) as file:
            experiment = parse_toml(file.read(MOST_SETTINGS)).get("experiment")
    except (OSError, ValueError):
        return None
    nodes = experiment.get("adversaries") if isinstance(experiment, dict) else None
    if not isinstance(experiment, dict) or not isinstance(nodes, int) or nodes <= 0:
        return None
    return {"kind": str(experiment.get("attack", "planted"))[:40], "nodes": nodes}
