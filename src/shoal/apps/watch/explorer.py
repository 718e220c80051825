"""Completions of a run: found, a page at a time, the newest first; a rollout whole; texts in pieces.

A page's places are found first, by the few columns that the conditions are about, and then the texts of these places
alone are read. A search looks at some parts at a time, from the newest on, and answers after `SLICE` seconds with what
it has and how far it came; the page goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.apps.watch.cache import COLUMNS, Cache
from shoal.apps.watch.source import NAME, PIECE, SHOWN, WHOLE, Data, MissingError, RolloutQuery, RowQuery, TextQuery
from shoal.apps.watch.tables import Row, Tables, parquet
from shoal.runs.tables import LEARNED, ROLLOUTS

SLICE = 0.2
"""Seconds after which a search that has not looked at everything answers."""
STEPS = (1, 3, 6)
"""Parts that are looked at together: at first few, as the newest often have a page's worth."""
TOGETHER, LEARNERS = 256, 200
"""Completions of a rollout, and updates it went into, that are shown."""
KEY = ("round", "node", "task", "version", "config", "seed", "index")


class Explorer:
    """The rollouts in the folder that `tables` reads."""

    def __init__(self, tables: Tables, clock: Callable[[], float] = time.monotonic) -> None:
        self.tables = tables
        self.cache = Cache(tables)
        self._clock = clock

    def page(self, query: RolloutQuery) -> Data:
        """Rows with texts cut, `next` to go on after the last, and `searched`: the round down to which was looked."""
        parts = self.tables.parts(ROLLOUTS)
        self.cache.warm()
        held = self.cache.held() if query.text else set()
        lessons = self.tables.parts(LEARNED)
        conditions, values = _conditions(query, parquet(lessons.values()) if lessons else None)
        left = sorted(parts, reverse=True)
        if query.after:
            part, row = map(int, query.after.split("."))
            left = [each for each in left if each < part + (row > 0)]  # row 0: nothing of that part is left
            conditions.append("(part < $at_part OR row < $at_row)")
            values |= {"at_part": part, "at_row": row}
        found: list[Row] = []
        began, steps, floor = self._clock(), iter(STEPS), None
        while left and len(found) <= query.limit:
            if floor is not None and self._clock() - began > SLICE:
                break
            now, left = _split(left, held, next(steps, STEPS[-1]))
            source = self._relation(now, parts, held)
            limit = query.limit + 1 - len(found)
            where = " AND ".join(conditions) or "true"
            order = "ORDER BY part DESC, row DESC LIMIT $limit"
            sql = f"SELECT part, row FROM {source} r WHERE {where} {order}"
            found += self.tables.rows(sql, values | {"limit": limit})
            floor = min(now)
        more = len(found) > query.limit
        found = found[: query.limit]
        after: str | None = None
        if more:
            after = f"{found[-1]['part']}.{found[-1]['row']}"
        elif left and floor is not None:
            after = f"{floor}.0"
        return {
            "rows": self._texts(found, parts),
            "next": after,
            "searched": floor if left and not more else None,
        }

    def whole(self, query: RowQuery) -> Data:
        """The rollout that has this completion."""
        path = self._path(query.part)
        mine = self.tables.rows(
            f"SELECT {_names(KEY)}, length(question) AS question_length, "
            f"substr(question, 1, {WHOLE}) AS question FROM {parquet([path])} WHERE row = $row",
            {"row": query.row},
        )
        if not mine:
            raise MissingError("there is no such completion")
        head = mine[0]
        key = {name: head[name] for name in KEY}
        same = " AND ".join(f'"{name}" = ${name}' for name in KEY)
        completions = self.tables.rows(
            f"SELECT part, row, substr(completion, 1, {WHOLE}) AS completion, length(completion) AS length, "
            f"{_cut('finish_reason')}, reward FROM {parquet([path])} WHERE {same} ORDER BY row LIMIT {TOGETHER}",
            key,
        )
        head |= {"seed": str(head["seed"]), "index": str(head["index"])}  # a page's numbers have 53 bits
        return head | {"part": query.part, "row": query.row, "completions": completions, "learned": self._learned(key)}

    def text(self, query: TextQuery) -> Data:
        """A piece of a text, and where the next one begins."""
        rows = self.tables.rows(
            f"SELECT substr({query.field}, $start, {PIECE}) AS text, length({query.field}) AS length "
            f"FROM {parquet([self._path(query.part)])} WHERE row = $row",
            {"row": query.row, "start": query.offset + 1},
        )
        if not rows:
            raise MissingError("there is no such completion")
        end = query.offset + PIECE
        return rows[0] | {"next": end if end < rows[0]["length"] else None}

    def _learned(self, key: Row) -> list[Row]:
        parts = self.tables.parts(LEARNED)
        if not parts:
            return []
        return self.tables.rows(
            f'SELECT {_cut("node")}, round, mean_reward, "foreign" FROM {parquet(parts.values())} WHERE {_SAME} '
            f'ORDER BY "foreign", round LIMIT {LEARNERS}',
            {name: key[name] for name in ("node", "round", "task", "config", "seed", "index")},
        )

    def _texts(self, found: list[Row], parts: dict[int, Path]) -> list[Row]:
        """What a page shows of these places, in their order."""
        if not found:
            return []
        files = parquet(parts[part] for part in dict.fromkeys(row["part"] for row in found))
        places = ", ".join(f"({row['part']}, {row['row']})" for row in found)
        low, high = min(row["row"] for row in found), max(row["row"] for row in found)
        sql = (
            f"SELECT part, row, round, {_cut('node')}, {_cut('task')}, reward, live, {_cut('finish_reason')}, "
            f"length(completion) AS length, "
            f"substr(question, 1, {SHOWN}) AS question, substr(completion, 1, {SHOWN}) AS completion "
            f"FROM {files} WHERE (part, row) IN ({places}) AND row BETWEEN {low} AND {high}"
        )
        rows = {(row["part"], row["row"]): row for row in self.tables.rows(sql)}
        return [rows[place] for place in ((row["part"], row["row"]) for row in found) if place in rows]

    def _relation(self, now: list[int], parts: dict[int, Path], held: set[int]) -> str:
        if now[0] in held:
            return f"(SELECT * FROM cached WHERE part BETWEEN {now[-1]} AND {now[0]})"
        texts = "lower(question) AS asked, lower(completion) AS said"
        return f"(SELECT {COLUMNS}, {texts} FROM {parquet(parts[part] for part in now)})"

    def _path(self, part: int) -> Path:
        try:
            return self.tables.parts(ROLLOUTS)[part]
        except KeyError:
            raise MissingError("there is no such completion") from None


_SAME = 'maker = $node AND made = $round AND task = $task AND config = $config AND seed = $seed AND "index" = $index'


def _cut(name: str) -> str:
    return f'left("{name}", {NAME}) AS "{name}"'


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _split(left: list[int], held: set[int], most: int) -> tuple[list[int], list[int]]:
    """The next parts to look at together, all cached or none, and the rest."""
    cached = left[0] in held
    end = 1
    while end < min(most if not cached else 2 * most, len(left)) and (left[end] in held) == cached:
        end += 1
    return left[:end], left[end:]


def _conditions(query: RolloutQuery, learned: str | None) -> tuple[list[str], dict[str, Any]]:
    """SQL and values for what `query` asks. `learned`: the rows of what was learned from, if there are any."""
    simple = {
        "node": ("node = $node", query.node),
        "task": ("task = $task", query.task),
        "least": ("reward >= $least", query.least),
        "most": ("reward <= $most", query.most),
        "first": ("round >= $first", query.first),
        "last": ("round <= $last", query.last),
        "live": ("live = $live", query.live),
        "finish": ("finish_reason = $finish", query.finish),
    }
    conditions = [sql for sql, value in simple.values() if value is not None]
    values: dict[str, Any] = {name: value for name, (_, value) in simple.items() if value is not None}
    if query.text:
        conditions.append("(contains(said, lower($text)) OR contains(asked, lower($text)))")
        values["text"] = query.text
    if query.learner is not None and learned is None:
        conditions.append("false")
    elif query.learner is not None:
        whom = 'l."foreign"' if query.learner == "*" else "l.node = $learner"
        conditions.append(f"EXISTS (FROM {learned} l WHERE {whom} AND {_LEARNED})")
        values |= {} if query.learner == "*" else {"learner": query.learner}
    return conditions, values


_LEARNED = 'l.maker = r.node AND l.made = r.round AND l.task = r.task AND l.seed = r.seed AND l."index" = r."index"'
