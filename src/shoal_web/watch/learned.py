"""Who learned from whom in a run, and what: `learned` as arrows; the same held-out questions over a node's evaluations,
with what it trained on before it answered right.

    lessons = Lessons(tables)
    lessons.graph(GraphQuery())                                     # arrows from makers to learners
    story = lessons.story(StoryQuery(node="node-1"))
    story["questions"][0]["first_right"]      # the round of the first evaluation with a right answer, or None
    story["questions"][0]["said_now"]         # its answer in the last evaluation, with the reward `now`
    story["before"]["last"]["maker"]          # whose rollout of that task it trained on last before that

It says what came when. What caused what, a run alone does not show.
"""

import re
from typing import Any, Final

import numpy as np

from shoal.runs.tables import LEARNED, ROLLOUTS, TRANSCRIPTS, turns_of
from shoal_web.watch.pictures import identified, with_drawings
from shoal_web.watch.source import NAME, SHOWN, Data, GraphQuery, StoryQuery
from shoal_web.watch.tables import HELD, Row, Tables, parquet

EDGES: Final = 2000  # arrows, at most, a node's own rollouts included
MAKERS: Final = 20  # of one task that are shown, at most
MAKER: Final = f"coalesce(left(maker, {NAME}), '') AS maker, coalesce(peer, false) AS peer"
QUESTIONS, EVALUATIONS, TOLD = 256, 40, 4000
"""Of one node that are shown, at most: questions, evaluations (evenly chosen), characters of each text."""
RIGHT: Final = 1.0
KEY: Final = f"left(md5(concat(left(task, {NAME}), chr(0), left(prompt, {TOLD}))), 8)"
"""SQL for what names a question in addresses."""


class Lessons:
    """What was learned from in the folder that `tables` reads."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def graph(self, query: GraphQuery) -> Data:
        """Arrows from makers to learners, and from each learner to itself, the heaviest first: rollouts, how many were
        live, their mean reward, the tasks that they were most often of, and their share of the learner's `gradient`, a
        mean over its rounds that had one."""
        lessons = self._tables.all(LEARNED)
        recent = f"WHERE round > (SELECT max(round) - {query.rounds} FROM {lessons})" if query.rounds else ""
        edges = self._tables.rows(
            f"WITH lessons AS (SELECT *, count(DISTINCT round) FILTER (WHERE gradient_share > 0) "
            f"OVER (PARTITION BY node) AS rounds FROM {lessons} {recent}) "
            f"SELECT {MAKER}, coalesce(left(node, {NAME}), '') AS node, count(*) AS rollouts, count_if(live) AS live, "
            "avg(mean_reward) AS reward, sum(gradient_share) / nullif(any_value(rounds), 0) AS gradient, "
            f"approx_top_k(left(task, {NAME}), 3) FILTER (WHERE live) AS tasks "
            f"FROM lessons GROUP BY ALL ORDER BY rollouts DESC, maker, node LIMIT {EDGES + 1}"
        )
        return {"edges": edges[:EDGES], "more": len(edges) > EDGES}

    def story(self, query: StoryQuery) -> Data:
        """The node's questions with their marks, and one of them with its answers and what came before them."""
        all = self._tables.all(TRANSCRIPTS)
        named = f"(SELECT *, {KEY} AS key FROM {all} WHERE left(node, {NAME}) = $node AND round >= 0)"
        own = f"(SELECT DISTINCT ON (key, round) * FROM {named})"
        values: dict[str, Any] = {"node": query.node}
        every = [row["round"] for row in self._tables.rows(f"SELECT DISTINCT round FROM {own} ORDER BY 1", values)]
        if not every:
            return {"questions": [], "rounds": [], "evaluations": 0, "chosen": None, "answers": [], "before": None}
        shown = [every[at] for at in np.unique(np.linspace(0, len(every) - 1, EVALUATIONS).round().astype(int))]
        questions = self._tables.rows(
            f"SELECT key, coalesce(any_value(left(task, {NAME})), '') AS task, "
            f"coalesce(any_value(left(prompt, {TOLD})), '') AS question, any_value(left(answer, {SHOWN})) AS answer, "
            f"any_value(left(identity, {NAME})) AS identity, "
            f"min(round) FILTER (WHERE reward >= {RIGHT}) AS first_right, "
            f"arg_min(left(completion, {SHOWN}), round) AS said_before, arg_min(reward, round) AS before, "
            f"arg_max(left(completion, {SHOWN}), round) AS said_now, arg_max(reward, round) AS now, "
            f"list([round, reward]) FILTER (WHERE round IN {_list(shown)}) AS marks "
            f"FROM {own} GROUP BY key ORDER BY 2, 3, 1 LIMIT {QUESTIONS}",
            values,
        )
        for question in questions:
            marks = dict(question["marks"] or ())
            question["marks"] = [marks.get(round) for round in shown]
            question["pictures"] = identified(task_of(question["task"]), question.pop("identity"))
        asked = [question for question in questions if question["key"] == query.question]
        chosen = asked[0] if asked else max(questions, key=_turned)  # of equal ones the first
        first = chosen["first_right"]
        rounds = sorted({*shown, *([] if first is None else [first])})
        answers = self._tables.rows(
            f"SELECT round, left(completion, {TOLD}) AS completion, reward, {HELD} FROM {own} "
            f"WHERE key = $key AND round IN {_list(rounds)} ORDER BY round",
            values | {"key": chosen["key"]},
        )
        for answer in answers:
            answer["conversation"] = turns_of(answer["conversation"])
        earlier = [round for round in every if first is not None and round < first]
        return {
            "questions": questions,
            "rounds": shown,
            "evaluations": len(every),
            "chosen": chosen["key"],
            "answers": with_drawings(answers),
            "before": self._before(query.node, chosen["task"], earlier[-1], first) if earlier else None,
        }

    def _before(self, node: str, label: str, after: int, until: int) -> Data:
        """The live rollouts of a task that the node trained on in the rounds after `after` and up to `until`."""
        where = (
            f"FROM {self._tables.all(LEARNED)} WHERE left(node, {NAME}) = $node AND task IN ($label, $task) AND live "
            "AND round > $after AND round <= $until"
        )
        values = {"node": node, "label": label, "task": task_of(label), "after": after, "until": until}
        makers = self._tables.rows(
            f"SELECT {MAKER}, count(*) AS rollouts {where} GROUP BY ALL ORDER BY rollouts DESC, maker LIMIT {MAKERS}",
            values,
        )
        last = self._tables.rows(
            f'SELECT maker, made, round, peer, mean_reward AS reward, task, config, seed, "index" {where} '
            "AND maker IS NOT NULL AND made >= 0 ORDER BY round DESC, mean_reward DESC, maker LIMIT 1",
            values,
        )
        return {"after": after, "until": until, "makers": makers, "last": self._rollout(last[0]) if last else None}

    def _rollout(self, lesson: Row) -> Data:
        """The rollout, with its question and best answer if this folder has it: those of its own nodes."""
        parts = self._tables.parts(ROLLOUTS)
        holder = [parts[part] for part in sorted(parts) if part <= lesson["made"]][-1:]
        rows = self._tables.rows(
            f"SELECT part, row, left(prompt, {SHOWN}) AS question, left(completion, {SHOWN}) AS completion, "
            f"reward AS best FROM {parquet(ROLLOUTS, holder)} WHERE node = $maker AND round = $made "
            'AND task = $task AND config = $config AND seed = $seed AND "index" = $index '
            "ORDER BY reward DESC, row LIMIT 1",
            {name: lesson[name] for name in ("maker", "made", "task", "config", "seed", "index")},
        )
        told = {name: lesson[name] for name in ("made", "round", "peer", "reward")} | {"maker": lesson["maker"][:NAME]}
        return told | (rows[0] if rows else {})


def task_of(label: str) -> str:
    """The name of a task: its label has the number of a level or of a repetition behind it."""
    return re.sub(r"(#\d+)?(@\d+)?$", "", label)


def _turned(question: Row) -> tuple[bool, bool]:
    """Whether a question was wrong at first and right later, and whether it is right now: what to tell first."""
    marks = [mark for mark in question["marks"] if mark is not None]
    if question["first_right"] is None or not marks:
        return False, False
    return marks[0] < RIGHT, marks[-1] >= RIGHT


def _list(rounds: list[int]) -> str:
    return f"({', '.join(map(str, rounds))})"
