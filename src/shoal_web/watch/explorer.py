"""Rollouts of a run: a page at a time, the newest first, found by the columns that conditions are about; one whole."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.runs.tables import LEARNED, ROLLOUTS, turns_of
from shoal_web.watch.pictures import shown_again
from shoal_web.watch.source import NAME, SHOWN, WHOLE, Data, MissingError, RolloutQuery, RowQuery
from shoal_web.watch.tables import HELD, Row, Tables

CONDITIONS = {
    "node": "r.node = $node",
    "task": "r.task = $task",
    "least": "reward >= $least",
    "most": "reward <= $most",
}
NEWEST = 4  # parts that often have a page's worth
TOGETHER, ANSWERS, LEARNERS = 256, 16, 200
"""Completions of a rollout, different ones of them in a page, and updates that used it, that are shown."""
KEY = ("round", "node", "task", "version", "config", "seed", "index")


class Explorer:
    """The rollouts in the folder that `tables` reads."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def page(self, query: RolloutQuery) -> Data:
        """Rollouts, each with those of its completions that meet the conditions, equal ones together; `next`: where to
        go on, if there is more."""
        parts = self._tables.parts(ROLLOUTS)
        conditions, values = conditions_of(query)
        meets, known = " AND ".join(conditions) or "true", dict(values)
        left = sorted(parts, reverse=True)
        if query.after:
            part, row = map(int, query.after.split("."))
            left = [each for each in left if each <= part]
            conditions.append("(part < $at_part OR row < $at_row)")
            values |= {"at_part": part, "at_row": row}
        found: list[Row] = []
        where = " AND ".join(conditions) or "true"
        for some in (left[:NEWEST], left):
            if some and len(found) <= query.limit:
                files = self._tables.some(ROLLOUTS, {part: parts[part] for part in some})
                found = self._tables.rows(
                    f"SELECT part, min(row) AS row, max(row) AS top, {_names(KEY)} "
                    f"FROM {files} r WHERE {where} "
                    f"GROUP BY part, {_names(KEY)} ORDER BY part DESC, top DESC LIMIT {query.limit + 1}",
                    values,
                )
        page = found[: query.limit]
        after = f"{page[-1]['part']}.{page[-1]['row']}" if len(found) > query.limit else None
        return {"rollouts": self._shown(page, parts, meets, known), "next": after}

    def _shown(self, found: list[Row], parts: dict[int, Path], meets: str, values: Row) -> list[Data]:
        """These rollouts as a page shows them, in their order."""
        if not found:
            return []
        files = self._tables.some(ROLLOUTS, {row["part"]: parts[row["part"]] for row in found})
        low, high = min(row["row"] for row in found) - TOGETHER, max(row["top"] for row in found) + TOGETHER
        same = " AND ".join(f'r."{name}" IS NOT DISTINCT FROM f."{name}"' for name in ("part", *KEY))
        near = f"r.row BETWEEN f.row - {TOGETHER} AND f.top + {TOGETHER}"
        rows = self._tables.rows(
            f"SELECT place, r.row, {_cut('finish_reason')}, reward, ({meets}) AS meets, length(completion) AS length, "
            f"left(prompt, {SHOWN}) AS question, left(answer, {SHOWN}) AS answer, "
            f"left(completion, {SHOWN}) AS completion FROM {files} r JOIN "
            f"(SELECT unnest($found, recursive := true)) f ON {same} AND {near} "
            f"WHERE r.row BETWEEN {low} AND {high} "
            f"QUALIFY row_number() OVER (PARTITION BY place ORDER BY r.row) <= {TOGETHER} ORDER BY place, r.row",
            values | {"found": [row | {"place": at} for at, row in enumerate(found)]},
        )
        return [_told(one, [row for row in rows if row["place"] == at]) for at, one in enumerate(found)]

    def whole(self, query: RowQuery) -> Data:
        """The rollout that has this completion."""
        parts = self._tables.parts(ROLLOUTS)
        rows = self._tables.some(ROLLOUTS, {part: path for part, path in parts.items() if part == query.part})
        mine = self._tables.rows(
            f"SELECT {_names(KEY)}, length(prompt) AS question_length, left(answer, {WHOLE}) AS answer, "
            f"left(prompt, {WHOLE}) AS question FROM {rows} WHERE row = $row",
            {"row": query.row},
        )
        if not mine:
            raise MissingError("there is no such completion")
        head = mine[0]
        key = {name: head[name] for name in KEY}
        same = " AND ".join(f'"{name}" = ${name}' for name in KEY)
        completions = self._tables.rows(
            f"SELECT part, row, left(completion, {WHOLE}) AS completion, length(completion) AS length, "
            f'{_cut("finish_reason")}, reward, left("read", {NAME}) AS "read", {HELD} '
            f"FROM {rows} WHERE {same} ORDER BY row LIMIT {TOGETHER}",
            key,
        )
        for each in completions:
            each["conversation"] = turns_of(each["conversation"])
        head["pictures"] = shown_again(head["task"], head["version"], head["seed"], head["index"])
        head |= {"seed": str(head["seed"]), "index": str(head["index"])}  # a page's numbers have 53 bits
        of = " AND ".join(f'"{name}" = ${name}' for name in ("task", "config", "seed", "index"))
        learned = self._tables.rows(
            f"SELECT {_cut('node')}, round, mean_reward, peer FROM {self._tables.all(LEARNED)} "
            f"WHERE maker = $node AND made = $round AND {of} ORDER BY peer, round LIMIT {LEARNERS}",
            {name: value for name, value in key.items() if name != "version"},
        )
        return head | {"completions": completions, "part": query.part, "row": query.row, "learned": learned}


def _told(found: Row, rows: list[Row]) -> Data:
    told: Data = {name: (found[name] or "")[:NAME] for name in ("node", "task")} | {"round": found["round"]}
    told |= {"part": found["part"], "row": found["row"], "question": (rows[0]["question"] or "") if rows else ""}
    told |= {"answer": rows[0]["answer"] if rows else None, "completions": len(rows)}
    return told | {"right": sum((row["reward"] or 0) >= 1 for row in rows), "answers": _together(rows)}


def _together(rows: list[Row]) -> list[Row]:
    """Those of a rollout's completions that meet the conditions, the best first, equal ones as one with their number
    of `times`."""
    found: dict[tuple[str, float, str], Row] = {}
    for row in rows:
        if row["meets"]:
            key = row["completion"], row["reward"], row["finish_reason"]
            shown = {name: row[name] for name in ("row", "completion", "reward", "finish_reason", "length")}
            found.setdefault(key, shown | {"times": 0})["times"] += 1
    return sorted(found.values(), key=lambda row: (-(row["reward"] or 0), -row["times"]))[:ANSWERS]


def _cut(name: str) -> str:
    return f'coalesce(left("{name}", {NAME}), \'\') AS "{name}"'


def _names(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def conditions_of(query: RolloutQuery) -> tuple[list[str], dict[str, Any]]:
    """SQL and values for `query`."""
    values: dict[str, Any] = {name: getattr(query, name) for name in CONDITIONS if getattr(query, name) is not None}
    conditions = [CONDITIONS[name] for name in values]
    if query.text:
        conditions.append("(contains(lower(completion), lower($text)) OR contains(lower(r.prompt), lower($text)))")
        values["text"] = query.text
    return conditions, values
