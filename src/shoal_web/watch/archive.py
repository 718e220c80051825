"""An archive of a swarm as a source: who contributed what and when, how often each model is right, and every rollout
with its proof.

Prompts and rewards in it are the archiver's claim. The proof of a rollout is made here, when somebody opens it, by what
`shoal verify` uses (an entry point of `shoal.proofs`).
"""

import hashlib
import os
from pathlib import Path
from typing import Any, Final

from shoal.config.own_code import call_offered, offered
from shoal.errors import UserError
from shoal.runs.tables import ROLLOUTS
from shoal_web.watch.explorer import Explorer
from shoal_web.watch.reader import ARCHIVED
from shoal_web.watch.source import NAME, BusyError, Data, RowQuery, Source
from shoal_web.watch.tables import COLUMNS, Mark, Row, Tables

COMPLETIONS, GROUPS = ARCHIVED
TEXT: Final = ("prompt", "completion", "finish_reason", "group_id", "task", "version", "config", "node", "key", "model")
NUMBERS: Final = {"reward": "DOUBLE", "round": "BIGINT", "seed": "BIGINT", "index": "BIGINT"}
COLUMNS_HERE: Final = COLUMNS | {
    COMPLETIONS: dict.fromkeys(TEXT, "VARCHAR") | NUMBERS | {"time": "TIMESTAMP WITH TIME ZONE"},
    GROUPS: {"group_id": "VARCHAR", "envelope": "BLOB"},
}
ABSENT: Final = {"live": "BOOLEAN", "answer": "VARCHAR", "conversation": "VARCHAR", "read": "VARCHAR"}
"""Columns of a run's rollouts that archives do not have."""
MOST: Final = 200  # tasks, models and makers that are shown
BARS, DRAWN = 60, 8  # of the timeline: spans of time, and makers that stand apart
PROOFS: Final = "shoal.proofs"
FIGURES: Final = (
    "count(DISTINCT group_id) AS rollouts, count(*) AS completions, avg((reward >= 1)::DOUBLE) AS share, "
    'epoch_ms(min("time")) / 1000 AS first, epoch_ms(max("time")) / 1000 AS last'
)


class ArchiveTables(Tables):
    """The tables of an archive, its `completions` as the rollouts of a run."""

    columns = COLUMNS_HERE
    pattern = r"([0-9]{8})T[0-9]{6}-[0-9a-f]{16}\.parquet"

    def parts(self, table: str) -> dict[int, Path]:
        return super().parts(COMPLETIONS if table == ROLLOUTS else table)

    def some(self, table: str, parts: Any) -> str:
        if table != ROLLOUTS:
            return super().some(table, parts)
        absent = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in ABSENT.items())
        return f"(SELECT *, {absent} FROM {super().some(COMPLETIONS, parts)})"

    def _there(self, table: str) -> list[tuple[Mark, Path]]:
        """The parts by their places in the order of their names, which is that of time."""
        return [((at, *mark[1:]), path) for at, (mark, path) in enumerate(super()._there(table))]


class ArchiveSource(Source):
    """The archive in the folder `path`. Close it."""

    kind = "archive"

    def __init__(self, path: Path, title: str) -> None:
        self.folder, self.title = path, title
        self.id = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:12]
        self._tables = ArchiveTables(path)
        self._explorer = Explorer(self._tables)
        self.rollouts = self._explorer.page
        self._mark: Any = None

    def look(self) -> None:
        mark = self._tables.mark(COMPLETIONS)
        self.version += mark != self._mark
        self._mark = mark

    def changed(self) -> float:
        return max((mark[2] / 1e9 for mark in self._tables.mark(COMPLETIONS)), default=0.0)

    def summary(self) -> Data:
        told: Data = {"counts": [], "timeline": {"series": []}, "trouble": ""}
        try:
            told["counts"] = self._counts()
            told["timeline"] = self._timeline(told["counts"])
        except BusyError as error:
            told["trouble"] = str(error)
        counts: list[Row] = told["counts"]
        return {
            **self.brief(),
            **told,
            "views": ("archive", "rollouts"),
            "trouble": told["trouble"] or self._tables.trouble,
            "nodes": [],
            "makers": [row["node"] for row in counts if row["what"] == "node"],
            "tasks": [row["task"] for row in counts if row["what"] == "task"],
            "completions": sum(row["completions"] for row in counts if row["what"] == "all"),
        }

    def rollout(self, query: RowQuery) -> Data:
        """A rollout whole, with what its envelope proves."""
        found = self._explorer.whole(query)
        place = f"SELECT group_id FROM {self._tables.some(COMPLETIONS, self._part(query.part))} WHERE row = $row"
        rows = self._tables.rows(
            f"SELECT envelope FROM {self._tables.all(GROUPS)} WHERE group_id IN ({place}) LIMIT 1", {"row": query.row}
        )
        return found | {"proof": proof(rows[0]["envelope"]) if rows else {"wrong": "its signed envelope is missing"}}

    def close(self) -> None:
        self._tables.close()

    def _part(self, part: int) -> dict[int, Path]:
        return {part: self._tables.parts(COMPLETIONS)[part]}

    def _counts(self) -> list[Row]:
        """Figures of all, of each task, model and maker, and of each model in each task. Raises `BusyError`."""
        names = ", ".join(f"coalesce(left({each}, {NAME}), '') AS {each}" for each in ("task", "model", "node"))
        kinds = {0: "model and task", 3: "task", 5: "model", 6: "node", 7: "all"}
        return [
            row | {"what": kinds.get(row["what"], "model and task")}
            for row in self._tables.rows(
                f"SELECT GROUPING_ID(task, model, node) AS what, task, model, node, any_value(key) AS key, {FIGURES} "
                f"FROM (SELECT * REPLACE ({names}) FROM {self._tables.all(COMPLETIONS)}) "
                "GROUP BY GROUPING SETS ((), (task), (model), (node), (task, model)) "
                f"QUALIFY row_number() OVER (PARTITION BY what ORDER BY completions DESC, task, model, node) <= {MOST} "
                "ORDER BY completions DESC, task, model, node"
            )
        ]

    def _timeline(self, counts: list[Row]) -> Data:
        """Rollouts of the greatest makers, and of all others, in equal spans of time. Raises `BusyError`."""
        [whole] = [row for row in counts if row["what"] == "all"]
        if whole["first"] is None:
            return {"series": []}
        makers = [row["node"] for row in counts if row["what"] == "node"][:DRAWN]
        width = max((whole["last"] - whole["first"]) / BARS, 1.0)
        rows = self._tables.rows(
            f"SELECT CASE WHEN list_contains($makers, left(node, {NAME})) THEN left(node, {NAME}) ELSE 'others' END "
            f'AS maker, least({BARS - 1}, floor((epoch_ms("time") / 1000 - $first) / $width))::INTEGER AS place, '
            f"count(DISTINCT group_id) AS rollouts FROM {self._tables.all(COMPLETIONS)} GROUP BY 1, 2",
            {"makers": makers, "first": whole["first"], "width": width},
        )
        series = {name: [0] * BARS for name in (*makers, "others")}
        for row in rows:
            series[row["maker"]][max(0, row["place"] or 0)] += row["rollouts"]
        shown = [{"name": name, "counts": counts} for name, counts in series.items() if any(counts)]
        return {"first": whole["first"], "width": width, "series": shown}


def proof(envelope: bytes) -> Data:
    """What an envelope proves: {"key", "wrong", "question", "rewards"}; `wrong` says what does not hold."""
    if "archive" not in offered(PROOFS):
        return {"wrong": "the package that verifies is not installed"}
    try:
        made: Data = call_offered(PROOFS, "archive", envelope)
    except UserError as error:
        return {"wrong": str(error)}
    return made


def is_archive(path: Path) -> bool:
    return all((path / table).is_dir() and not (path / table).is_symlink() for table in ARCHIVED)
