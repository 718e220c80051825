"""What a node learned: the same held-out questions over its evaluations, and what it trained on just before.

    story = Story(tables).tell(StoryQuery(node="node-1"))
    story["questions"][0]["first_right"]      # the round of the first evaluation with a right answer, or None
    story["before"]["last"]["maker"]          # whose rollout of that task it trained on last before that

It says what came when. What caused what, a run alone does not show.
"""

from typing import Any, Final

import numpy as np

from shoal.runs.tables import ROLLOUTS, TRANSCRIPTS, turns_of
from shoal_web.watch.learned import Lessons, task_of
from shoal_web.watch.pictures import identified, with_drawings
from shoal_web.watch.source import NAME, SHOWN, WHOLE, Data, StoryQuery
from shoal_web.watch.tables import HELD, Row, Tables, parquet

QUESTIONS, EVALUATIONS = 64, 40
"""Of one node that are shown, at most: questions, evaluations (evenly chosen)."""
TRIED: Final = 8
"""Questions among which the one to begin with is chosen."""
RIGHT: Final = 1.0
KEY: Final = f"left(md5(concat(left(task, {NAME}), chr(0), left(question, {WHOLE}))), 8)"
"""SQL for what names a question in addresses."""


class Story:
    """The transcripts in the folder that `tables` reads, with what was learned."""

    def __init__(self, tables: Tables) -> None:
        self._tables, self._lessons = tables, Lessons(tables)

    def tell(self, query: StoryQuery) -> Data:
        """The node's questions with their marks, one of them with its answers, and what the node trained on."""
        found: Data = {"questions": [], "rounds": [], "evaluations": 0, "chosen": None, "answers": [], "before": None}
        found["makers"] = self._lessons.makers(query.node)
        all = self._tables.all(TRANSCRIPTS)
        own = f"(SELECT *, {KEY} AS key FROM {all} WHERE left(node, {NAME}) = $node AND round >= 0)"
        values: dict[str, Any] = {"node": query.node}
        every = [row["round"] for row in self._tables.rows(f"SELECT DISTINCT round FROM {own} ORDER BY 1", values)]
        questions = self._tables.rows(
            f"SELECT key, coalesce(any_value(left(task, {NAME})), '') AS task, "
            f"coalesce(any_value(left(question, {WHOLE})), '') AS question, "
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
            f"SELECT round, any_value(left(completion, {WHOLE})) AS completion, any_value(reward) AS reward, "
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
            found["before"] = self._lessons.before(query.node, chosen["task"], earlier[-1], first)
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


def _list(rounds: list[int]) -> str:
    return f"({', '.join(map(str, rounds))})"
