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
from shoal.runs.tables import ROLLOUTS
from shoal_web.watch.explorer import Explorer
from shoal_web.watch.reader import ARCHIVED
from shoal_web.watch.source import NAME, WHOLE, BusyError, Data, RowQuery, Source
from shoal_web.watch.tables import COLUMNS, Mark, Row, Tables

COMPLETIONS, GROUPS = ARCHIVED
TEXT: Final = ("prompt", "completion", "finish_reason", "group_id", "task", "version", "config", "node", "key", "model")
NUMBERS: Final = {"reward": "DOUBLE", "round": "BIGINT", "seed": "BIGINT", "index": "BIGINT"}
STORED: Final = dict.fromkeys(TEXT, "VARCHAR") | NUMBERS | {"time": "TIMESTAMP WITH TIME ZONE"}
ABSENT: Final = "NULL::BOOLEAN AS live, NULL::VARCHAR AS answer, NULL::VARCHAR AS conversation, NULL::VARCHAR AS read"
"""Columns of a run's rollouts that archives do not have."""
MOST, BARS, DRAWN = 200, 60, 8
"""Tasks, models and makers that are shown; of the timeline, spans of time, and makers that stand apart."""
PROOFS: Final = "shoal.proofs"
KINDS: Final = {1: "model and task", 3: "task", 5: "model", 6: "node", 7: "all"}  # by GROUPING_ID
FIGURES: Final = (
    "count(DISTINCT group_id) AS rollouts, count(*) AS completions, avg((reward >= 1)::DOUBLE) AS share, "
    'epoch_ms(min("time")) / 1000 AS first, epoch_ms(max("time")) / 1000 AS last'
)


class ArchiveTables(Tables):
    """The tables of an archive, its `completions` as the rollouts of a run."""

    columns = COLUMNS | {COMPLETIONS: STORED, GROUPS: {"group_id": "VARCHAR", "envelope": "BLOB"}}
    pattern = r"([0-9]{8})T[0-9]{6}-[0-9a-f]{16}\.parquet"

    def parts(self, table: str) -> dict[int, Path]:
        return super().parts(COMPLETIONS if table == ROLLOUTS else table)

    def some(self, table: str, parts: Any) -> str:
        rows = super().some(COMPLETIONS if table == ROLLOUTS else table, parts)
        return f"(SELECT *, {ABSENT} FROM {rows})" if table == ROLLOUTS else rows

    def _there(self, table: str) -> list[tuple[Mark, Path]]:
        """The parts by their places in the order of their names, which is that of time."""
        return [((at, *mark[1:]), path) for at, (mark, path) in enumerate(super()._there(table))]


class ArchiveSource(Source):
    """The archive in a folder. Close it."""

    kind = "archive"

    def __init__(self, folder: Path, title: str) -> None:
        self.title = title
        self.id = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:12]
        self._tables = ArchiveTables(folder)
        self._explorer = Explorer(self._tables)
        self.rollouts = self._explorer.page

    def look(self) -> None:
        self.version = hash(self._tables.mark(COMPLETIONS)) % 2**31

    def changed(self) -> float:
        return max((mark[2] / 1e9 for mark in self._tables.mark(COMPLETIONS)), default=0.0)

    def summary(self) -> Data:
        counts: list[Row] = []
        timeline: list[Row] = []
        trouble = ""
        try:
            counts = self._counts()
            timeline = self._timeline(counts)
        except BusyError as error:
            trouble = str(error)
        told: Data = {"counts": counts, "timeline": timeline, "trouble": trouble or self._tables.trouble, "nodes": []}
        told |= {"makers": [row["node"] for row in counts if row["what"] == "node"]}
        told |= {"tasks": [row["task"] for row in counts if row["what"] == "task"]}
        answers = sum(row["completions"] for row in counts if row["what"] == "all")
        return {**self.brief(), **told, "views": ("archive", "rollouts"), "completions": answers}

    def rollout(self, query: RowQuery) -> Data:
        """A rollout whole, with what its envelope proves: {"key", "wrong", "question", "rewards"}, where `wrong` says
        what does not hold."""
        found = self._explorer.whole(query)
        part = {query.part: self._tables.parts(COMPLETIONS)[query.part]}
        id = f"SELECT group_id FROM {self._tables.some(COMPLETIONS, part)} WHERE row = $row"
        rows = self._tables.rows(
            f"SELECT envelope FROM {self._tables.all(GROUPS)} WHERE group_id IN ({id}) LIMIT 1", {"row": query.row}
        )
        if not rows or "archive" not in offered(PROOFS):
            why = "what verifies archives is not installed" if rows else "its signed envelope is missing"
            return found | {"proof": {"wrong": why}}
        made: Data = call_offered(PROOFS, "archive", rows[0]["envelope"])
        claimed = [each["reward"] for each in found["completions"]]
        if not made["wrong"] and (made["question"][:WHOLE], made["rewards"]) != (found["question"], claimed):
            made["wrong"] = "the archive says another question, or other rewards, than were made again"
        return found | {"proof": made}

    def close(self) -> None:
        self._tables.close()

    def _counts(self) -> list[Row]:
        """Figures of all, of each task, model and maker, and of each model in each task. Raises `BusyError`."""
        names = ", ".join(f"coalesce(left({each}, {NAME}), '') AS {each}" for each in ("task", "model", "node"))
        rows = self._tables.rows(
            f"SELECT GROUPING_ID(task, model, node) AS what, task, model, node, any_value(left(key, 64)) AS key, "
            f"{FIGURES} FROM (SELECT * REPLACE ({names}) FROM {self._tables.all(COMPLETIONS)}) "
            "GROUP BY GROUPING SETS ((), (task), (model), (node), (task, model)) "
            f"QUALIFY row_number() OVER (PARTITION BY what ORDER BY completions DESC, task, model, node) <= {MOST} "
            "ORDER BY completions DESC, task, model, node"
        )
        return [row | {"what": KINDS[row["what"]]} for row in rows]

    def _timeline(self, counts: list[Row]) -> list[Row]:
        """Rollouts of the greatest makers, and of all others, by spans of time. Raises `BusyError`."""
        [whole] = [row for row in counts if row["what"] == "all"]
        makers = [row["node"] for row in counts if row["what"] == "node"][:DRAWN]
        first, last = whole["first"] or 0.0, whole["last"] or 0.0
        return self._tables.rows(
            f"SELECT CASE WHEN list_contains($makers, left(node, {NAME})) THEN left(node, {NAME}) ELSE '' END AS name, "
            '$first + floor((epoch_ms("time") / 1000 - $first) / $width) * $width AS at, '
            f"count(DISTINCT group_id) AS rollouts FROM {self._tables.all(COMPLETIONS)} GROUP BY 1, 2 ORDER BY 2",
            {"makers": makers, "first": first, "width": max((last - first) / BARS, 1.0)},
        )


def is_archive(folder: Path) -> bool:
    return all((folder / table).is_dir() and not (folder / table).is_symlink() for table in ARCHIVED)
