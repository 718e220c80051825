"""What a node learned: the same held-out questions over its evaluations, and what it trained on just before.

    story = Story(tables).tell(StoryQuery(node="node-1"))
    story["questions"][0]["first_right"]      # the round of the first evaluation with a right answer, or None
    story["before"]["last"]["maker"]          # whose rollout of that task it trained on last before that

It says what came when. What caused what, a run alone does not show.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from shoal.apps.watch.drawn import with_drawings
from shoal.apps.watch.pictures import identified
from shoal.apps.watch.source import NAME, SHOWN, WHOLE, Data, StoryQuery
from shoal.apps.watch.tables import Row, Tables, parquet
from shoal.runs.conversation import turns_of
from shoal.runs.tables import LEARNED, ROLLOUTS, TRANSCRIPTS

QUESTIONS, EVALUATIONS, MAKERS = 64, 40, 20
"""Of one node that are shown, at most: questions, evaluations (evenly chosen), makers it learned from."""
MAKER: Final = f'coalesce(left(maker, {NAME}), \'\') AS maker, coalesce("foreign", false) AS "foreign"'
TRIED: Final = 8
"""Questions among which the one to begin with is chosen."""
RIGHT: Final = 1.0
KEY: Final = f"left(md5(concat(left(task, {NAME}), chr(0), left(question, {WHOLE}))), 8)"
"""SQL for what names a question in addresses."""


class Story:
    """The transcripts in the folder that `tables` reads, with what was learned."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def tell(self, query: StoryQuery) -> Data:
        """The node's questions with their marks, one of them with its answers, and what the node trained on."""
        found: Data = {"questions": [], "rounds": [], "evaluations": 0, "chosen": None, "answers": [], "before": None}
        found["makers"] = self._makers(query.node)
        parts = self._tables.parts(TRANSCRIPTS)
        if not parts:
            return found
        own = f"(SELECT *, {KEY} AS key FROM {parquet(parts.values())} WHERE left(node, {NAME}) = $node AND round >= 0)"
        values: dict[str, Any] = {"node": query.node}
        every = [row["round"] for row in self._tables.rows(f"SELECT DISTINCT round FROM {own} ORDER BY 1", values)]
        questions = self._tables.rows(
            f"SELECT key, coalesce(any_value(left(task, {NAME})), '') AS task, "
            f"coalesce(any_value(left(question, {WHOLE})), '') AS question, "
            f"any_value(left({self._tables.column(TRANSCRIPTS, 'answer')}, {SHOWN})) AS answer, "
            f"any_value(left({self._tables.column(TRANSCRIPTS, 'identity')}, {NAME})) AS identity, "
            f"min(round) FILTER (WHERE reward >= {RIGHT}) AS first_right "
            f"FROM {own} GROUP BY key ORDER BY 2, 3, 1 LIMIT {QUESTIONS}",
            values,
        )
        if not questions:
            return found
        shown = _evenly(every, EVALUATIONS)
        for question in questions:
            question["marks"] = [None] * len(shown)
            question["pictures"] = identified(_task_of(question["task"]), question.pop("identity"))
        by_key = {question["key"]: question for question in questions}
        marks = f"SELECT key, round, any_value(reward) AS reward FROM {own} WHERE round IN {_list(shown)} GROUP BY ALL"
        for row in self._tables.rows(marks, values):
            if row["key"] in by_key:
                by_key[row["key"]]["marks"][shown.index(row["round"])] = row["reward"]
        chosen = by_key.get(query.question or "") or self._telling(questions)
        chosen["common"] = self._common(chosen)
        first = chosen["first_right"]
        rounds = sorted({*shown, *([] if first is None else [first])})
        held = self._tables.column(TRANSCRIPTS, "conversation")
        answers = self._tables.rows(
            f"SELECT round, any_value(left(completion, {WHOLE})) AS completion, any_value(reward) AS reward, "
            f"any_value(CASE WHEN length({held}) <= {WHOLE} THEN {held} END) AS conversation, "
            f"any_value(left(finish_reason, {NAME})) AS finish_reason FROM {own} "
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

        def turned(question: Row, last: int) -> bool:
            marks = [mark for mark in question["marks"] if mark is not None]
            turned = question["first_right"] is not None and bool(marks) and marks[0] < RIGHT
            return turned and (not last or marks[-1] >= RIGHT)

        for last in (1, 0):
            if found := [question for question in questions if turned(question, last)][:TRIED]:
                return min(found, key=lambda question: self._common(question) or 0.0)
        return questions[0]

    def _common(self, question: Row) -> float | None:
        """The share of the task's training questions, among the latest, that have the same right answer."""
        parts = self._tables.parts(ROLLOUTS)
        if not parts or question["answer"] is None:
            return None
        newest = parquet([parts[max(parts)]])
        values = {"answer": question["answer"], "label": question["task"], "task": _task_of(question["task"])}
        [row] = self._tables.rows(
            f"SELECT avg((left(answer, {SHOWN}) = $answer)::INT) AS share FROM "
            f"(SELECT any_value({self._tables.column(ROLLOUTS, 'answer')}) AS answer FROM {newest} "
            'WHERE task IN ($label, $task) GROUP BY seed, "index")',
            values,
        )
        share: float | None = row["share"]
        return share

    def _makers(self, node: str) -> list[Row]:
        """Whose rollouts the node trained on; of `live` ones it could learn."""
        parts = self._tables.parts(LEARNED)
        if not parts:
            return []
        return self._tables.rows(
            f"SELECT {MAKER}, count(*) AS rollouts, count_if(live) AS live, "
            f"avg(mean_reward) AS reward FROM {parquet(parts.values())} WHERE left(node, {NAME}) = $node "
            f'GROUP BY 1, 2 ORDER BY "foreign", rollouts DESC, 1 LIMIT {MAKERS}',
            {"node": node},
        )

    def _before(self, node: str, label: str, after: int, until: int) -> Data:
        """The live rollouts of a task that the node trained on in the rounds after `after` and up to `until`."""
        found: Data = {"after": after, "until": until, "makers": [], "last": None}
        parts = self._tables.parts(LEARNED)
        if not parts:
            return found
        where = (
            f"FROM {parquet(parts.values())} WHERE left(node, {NAME}) = $node AND task IN ($label, $task) AND live "
            "AND round > $after AND round <= $until"
        )
        values: dict[str, Any] = {"node": node, "label": label, "task": _task_of(label)}
        values |= {"after": after, "until": until}
        found["makers"] = self._tables.rows(
            f"SELECT {MAKER}, count(*) AS rollouts, avg(mean_reward) AS reward "
            f"{where} GROUP BY 1, 2 ORDER BY rollouts DESC, 1 LIMIT {MAKERS}",
            values,
        )
        last = self._tables.rows(
            f'SELECT maker, made, round, "foreign", mean_reward AS reward, task, config, seed, "index" {where} '
            "AND maker IS NOT NULL AND made >= 0 ORDER BY round DESC, mean_reward DESC, maker LIMIT 1",
            values,
        )
        if last:
            found["last"] = self._rollout(last[0])
        return found

    def _rollout(self, lesson: Row) -> Data:
        """The rollout, with its question and best answer if this folder has it: those of its own nodes."""
        told = {name: lesson[name] for name in ("made", "round", "foreign", "reward")}
        told["maker"] = lesson["maker"][:NAME]
        parts = self._tables.parts(ROLLOUTS)
        holder = max((part for part in parts if part <= lesson["made"]), default=None)
        if holder is None:
            return told
        rows = self._tables.rows(
            f"SELECT part, row, left(question, {SHOWN}) AS question, left(completion, {SHOWN}) AS completion, "
            f"reward AS best FROM {parquet([parts[holder]])} WHERE node = $maker AND round = $made "
            'AND task = $task AND config = $config AND seed = $seed AND "index" = $index '
            "ORDER BY reward DESC, row LIMIT 1",
            {name: lesson[name] for name in ("maker", "made", "task", "config", "seed", "index")},
        )
        return told | (rows[0] if rows else {})


def _task_of(label: str) -> str:
    """The name of a task: its label has the number of a level or of a repetition behind it."""
    return re.sub(r"(#\d+)?(@\d+)?$", "", label)


def _evenly(rounds: list[int], most: int) -> list[int]:
    if len(rounds) <= most:
        return rounds
    return [rounds[at] for at in np.linspace(0, len(rounds) - 1, most).round().astype(int)]


def _list(rounds: list[int]) -> str:
    return f"({', '.join(map(str, rounds))})"
