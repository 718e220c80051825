"""Who learned from whom in a run, and what: `learned` as arrows and shares; the same held-out questions over a node's
evaluations, with what it trained on before it answered right.

    lessons = Lessons(tables)
    lessons.graph(GraphQuery())                                     # arrows from makers to learners
    story = lessons.story(StoryQuery(node="node-1"))
    story["questions"][0]["first_right"]      # the round of the first evaluation with a right answer, or None
    story["before"]["last"]["maker"]          # whose rollout of that task it trained on last before that

It says what came when. What caused what, a run alone does not show.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from shoal.runs.tables import LEARNED, ROLLOUTS, TRANSCRIPTS, turns_of
from shoal_web.watch.pictures import identified, with_drawings
from shoal_web.watch.source import EDGES, NAME, SHOWN, Data, GraphQuery, StoryQuery
from shoal_web.watch.tables import HELD, Row, Tables, parquet

SHARES = 1000
"""Shares of a maker in a node's gradient that are shown, at most."""
MAKERS: Final = 20
"""Of one node that are shown, at most."""
MAKER: Final = f"coalesce(left(maker, {NAME}), '') AS maker, coalesce(\"foreign\", false) AS peer"
QUESTIONS, EVALUATIONS, TOLD = 64, 40, 4000
"""Of one node that are shown, at most: questions, evaluations (evenly chosen), characters of each text."""
TRIED: Final = 8
"""Questions among which the one to begin with is chosen."""
RIGHT: Final = 1.0
KEY: Final = f"left(md5(concat(left(task, {NAME}), chr(0), left(question, {TOLD}))), 8)"
"""SQL for what names a question in addresses."""


class Lessons:
    """What was learned from in the folder that `tables` reads."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def graph(self, query: GraphQuery) -> Data:
        """Arrows from makers to learners, the heaviest first: rollouts, how many were live, their mean reward."""
        lessons = self._tables.all(LEARNED)
        recent = f"AND round > (SELECT max(round) - {query.rounds} FROM {lessons})" if query.rounds else ""
        edges = self._tables.rows(
            f"SELECT left(maker, {NAME}) AS maker, left(node, {NAME}) AS node, "
            "count(*) AS rollouts, count_if(live) AS live, avg(mean_reward) AS reward "
            f'FROM {lessons} WHERE "foreign" {recent} GROUP BY 1, 2 ORDER BY rollouts DESC, 1, 2 LIMIT {EDGES + 1}'
        )
        return {"edges": edges[:EDGES], "more": len(edges) > EDGES}

    def shares(self) -> list[Row]:
        """Each other maker's share of each node's gradient, the largest: means over the node's rounds that had one."""
        return self._tables.rows(f"{self._shares()} FROM shares ORDER BY share DESC, 1, 2 LIMIT {SHARES}")

    def totals(self, names: Iterable[str]) -> dict[str, Row]:
        """Of each of these nodes: its own share of its gradient, and its shares of the peers', added up."""
        rows = self._tables.rows(
            f"{self._shares()}, learners AS (SELECT DISTINCT left(node, {NAME}) AS node FROM rounds) "
            "SELECT name, CASE WHEN name IN (FROM learners) THEN "
            "1 - coalesce((SELECT sum(share) FROM shares WHERE node = name), 0) END AS own_share, "
            "(SELECT sum(share) FROM shares WHERE maker = name) AS given_share "
            "FROM (SELECT unnest($names::VARCHAR[]) AS name)",
            {"names": list(names)},
        )
        return {row.pop("name"): row for row in rows}

    def _shares(self) -> str:
        """SQL with the tables `rounds` and `shares`."""
        lessons = self._tables.all(LEARNED)
        return (
            "WITH rounds AS "
            f"(SELECT node, count(DISTINCT round) AS n FROM {lessons} WHERE gradient_share > 0 GROUP BY 1), "
            f"shares AS (SELECT left(l.node, {NAME}) AS node, left(maker, {NAME}) AS maker, "
            f'sum(gradient_share) / any_value(n) AS share FROM {lessons} l JOIN rounds USING (node) WHERE "foreign" '
            "GROUP BY 1, 2 HAVING share > 0)"
        )

    def _makers(self, node: str) -> list[Row]:
        """Whose rollouts the node trained on. `live`: how many of them had rewards that differ."""
        return self._tables.rows(
            f"SELECT {MAKER}, count(*) AS rollouts, count_if(live) AS live, "
            f"avg(mean_reward) AS reward FROM {self._tables.all(LEARNED)} WHERE left(node, {NAME}) = $node "
            f"GROUP BY 1, 2 ORDER BY peer, rollouts DESC, 1 LIMIT {MAKERS}",
            {"node": node},
        )

    def _before(self, node: str, label: str, after: int, until: int) -> Data:
        """The live rollouts of a task that the node trained on in the rounds after `after` and up to `until`."""
        where = (
            f"FROM {self._tables.all(LEARNED)} WHERE left(node, {NAME}) = $node AND task IN ($label, $task) AND live "
            "AND round > $after AND round <= $until"
        )
        values = {"node": node, "label": label, "task": task_of(label), "after": after, "until": until}
        makers = self._tables.rows(
            f"SELECT {MAKER}, count(*) AS rollouts, avg(mean_reward) AS reward "
            f"{where} GROUP BY 1, 2 ORDER BY rollouts DESC, 1 LIMIT {MAKERS}",
            values,
        )
        last = self._tables.rows(
            f'SELECT maker, made, round, "foreign" AS peer, mean_reward AS reward, task, config, seed, "index" {where} '
            "AND maker IS NOT NULL AND made >= 0 ORDER BY round DESC, mean_reward DESC, maker LIMIT 1",
            values,
        )
        return {"after": after, "until": until, "makers": makers, "last": self._rollout(last[0]) if last else None}

    def _rollout(self, lesson: Row) -> Data:
        """The rollout, with its question and best answer if this folder has it: those of its own nodes."""
        told = {name: lesson[name] for name in ("made", "round", "peer", "reward")}
        told["maker"] = lesson["maker"][:NAME]
        parts = self._tables.parts(ROLLOUTS)
        holder = [parts[part] for part in sorted(parts) if part <= lesson["made"]][-1:]
        rows = self._tables.rows(
            f"SELECT part, row, left(question, {SHOWN}) AS question, left(completion, {SHOWN}) AS completion, "
            f"reward AS best FROM {parquet(ROLLOUTS, holder)} WHERE node = $maker AND round = $made "
            'AND task = $task AND config = $config AND seed = $seed AND "index" = $index '
            "ORDER BY reward DESC, row LIMIT 1",
            {name: lesson[name] for name in ("maker", "made", "task", "config", "seed", "index")},
        )
        return told | (rows[0] if rows else {})

    def story(self, query: StoryQuery) -> Data:
        """The node's questions with their marks, one of them with its answers, and what the node trained on."""
        found: Data = {"questions": [], "rounds": [], "evaluations": 0, "chosen": None, "answers": [], "before": None}
        found["makers"] = self._makers(query.node)
        all = self._tables.all(TRANSCRIPTS)
        own = f"(SELECT *, {KEY} AS key FROM {all} WHERE left(node, {NAME}) = $node AND round >= 0)"
        values: dict[str, Any] = {"node": query.node}
        every = [row["round"] for row in self._tables.rows(f"SELECT DISTINCT round FROM {own} ORDER BY 1", values)]
        questions = self._tables.rows(
            f"SELECT key, coalesce(any_value(left(task, {NAME})), '') AS task, "
            f"coalesce(any_value(left(question, {TOLD})), '') AS question, "
            f"any_value(left(answer, {SHOWN})) AS answer, "
            f"any_value(left(identity, {NAME})) AS identity, "
            f"min(round) FILTER (WHERE reward >= {RIGHT}) AS first_right "
            f"FROM {own} GROUP BY key ORDER BY 2, 3, 1 LIMIT {QUESTIONS}",
            values,
        )
        if not questions:
            return found
        shown = [every[at] for at in np.unique(np.linspace(0, len(every) - 1, EVALUATIONS).round().astype(int))]
        for question in questions:
            question["marks"] = [None] * len(shown)
            question["pictures"] = identified(task_of(question["task"]), question.pop("identity"))
        by_key = {question["key"]: question for question in questions}
        marks = f"SELECT key, round, any_value(reward) AS reward FROM {own} WHERE round IN {_list(shown)} GROUP BY ALL"
        for row in self._tables.rows(marks, values):
            if row["key"] in by_key:
                by_key[row["key"]]["marks"][shown.index(row["round"])] = row["reward"]
        chosen = by_key.get(query.question or "") or self._telling(questions)
        chosen["common"] = self._common(chosen)
        first = chosen["first_right"]
        rounds = sorted({*shown, *([] if first is None else [first])})
        answers = self._tables.rows(
            f"SELECT round, any_value(left(completion, {TOLD})) AS completion, any_value(reward) AS reward, "
            f"any_value(left(finish_reason, {NAME})) AS finish_reason, any_value(conversation) AS conversation "
            f"FROM (SELECT * REPLACE ({HELD}) FROM {own}) "
            f"WHERE key = $key AND round IN {_list(rounds)} GROUP BY round ORDER BY round",
            values | {"key": chosen["key"]},
        )
        for answer in answers:
            answer["conversation"] = turns_of(answer["conversation"])
        found |= {"questions": questions, "rounds": shown, "evaluations": len(every), "chosen": chosen["key"]}
        found["answers"] = with_drawings(answers)
        if first is not None and (earlier := [round for round in every if round < first]):
            found["before"] = self._before(query.node, chosen["task"], earlier[-1], first)
        return found

    def _telling(self, questions: list[Row]) -> Row:
        """One that was wrong at first and is right now: the one whose right answer says least about other questions of
        its task. Without any, one that was right in between; else the first."""
        right_now, turned = [], []
        for question in questions:
            marks = [mark for mark in question["marks"] if mark is not None]
            if question["first_right"] is not None and marks and marks[0] < RIGHT:
                turned.append(question)
                if marks[-1] >= RIGHT:
                    right_now.append(question)
        found = (right_now or turned)[:TRIED]
        return min(found, key=lambda question: self._common(question) or 0.0, default=questions[0])

    def _common(self, question: Row) -> float | None:
        """The share of the task's training questions, among the latest, that have the same right answer."""
        if question["answer"] is None:
            return None
        parts = self._tables.parts(ROLLOUTS)
        newest = parquet(ROLLOUTS, [parts[part] for part in sorted(parts)[-1:]])
        values = {"answer": question["answer"], "label": question["task"], "task": task_of(question["task"])}
        [row] = self._tables.rows(
            f"SELECT avg((left(answer, {SHOWN}) = $answer)::INT) AS share FROM "
            f"(SELECT any_value(answer) AS answer FROM {newest} "
            'WHERE task IN ($label, $task) GROUP BY seed, "index")',
            values,
        )
        share: float | None = row["share"]
        return share


def task_of(label: str) -> str:
    """The name of a task: its label has the number of a level or of a repetition behind it."""
    return re.sub(r"(#\d+)?(@\d+)?$", "", label)


def _list(rounds: list[int]) -> str:
    return f"({', '.join(map(str, rounds))})"
