"""Who learned from whom in a run, as arrows; and the same held-out questions over a node's evaluations.

lessons = Lessons(tables)
lessons.graph(Parameters())                                     # arrows from makers to learners
story = lessons.story(StoryQuery(node="node-1"))
story["questions"][0]["said_now"]         # its answer in the last evaluation, with the reward `now`
lessons.story(StoryQuery(node="node-1", question=story["questions"][0]["key"]))["answers"]     # all of them
"""

import re
from typing import Any, Final

import numpy as np

from shoal.runs.tables import LEARNED, TRANSCRIPTS, turns_of
from shoal_web.watch.pictures import identified
from shoal_web.watch.source import NAME, SHOWN, Data, Parameters, StoryQuery
from shoal_web.watch.tables import HELD, Tables

EDGES: Final = 5000  # arrows, at most, a node's own rollouts included
QUESTIONS, EVALUATIONS, TOLD = 256, 40, 4000
"""Of one node that are shown, at most: questions, evaluations (evenly chosen), characters of each text."""
KEY: Final = f"left(md5(concat(left(task, {NAME}), chr(0), left(prompt, {TOLD}))), 8)"
"""SQL for what names a question in addresses."""


class Lessons:
    """What was learned from in the folder that `tables` reads."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def graph(self, query: Parameters) -> Data:
        """Arrows from makers to learners, and from each learner to itself, the heaviest first: rollouts, how many were
        live, their mean reward, the tasks that they were most often of, and their share of the learner's `gradient`, a
        mean over its rounds that had one."""
        lessons = self._tables.all(LEARNED)
        edges = self._tables.rows(
            f"WITH lessons AS (SELECT *, count(DISTINCT round) FILTER (WHERE gradient_share > 0) "
            f"OVER (PARTITION BY node) AS rounds FROM {lessons}) "
            f"SELECT coalesce(left(maker, {NAME}), '') AS maker, coalesce(peer, false) AS peer, "
            f"coalesce(left(node, {NAME}), '') AS node, count(*) AS rollouts, count_if(live) AS live, "
            "avg(mean_reward) AS reward, sum(gradient_share) / nullif(any_value(rounds), 0) AS gradient, "
            f"approx_top_k(left(task, {NAME}), 3) FILTER (WHERE live) AS tasks "
            f"FROM lessons GROUP BY ALL ORDER BY rollouts DESC, maker, node LIMIT {EDGES + 1}"
        )
        return {"edges": edges[:EDGES], "more": len(edges) > EDGES}

    def story(self, query: StoryQuery) -> Data:
        """The node's questions with their first and last answers, and one of them with all."""
        all = self._tables.all(TRANSCRIPTS)
        named = f"(SELECT *, {KEY} AS key FROM {all} WHERE left(node, {NAME}) = $node AND round >= 0)"
        own = f"(SELECT DISTINCT ON (key, round) * FROM {named})"
        values: dict[str, Any] = {"node": query.node}
        every = [row["round"] for row in self._tables.rows(f"SELECT DISTINCT round FROM {own} ORDER BY 1", values)]
        if not every:
            return {"questions": [], "rounds": [], "evaluations": 0, "answers": []}
        shown = [every[at] for at in np.unique(np.linspace(0, len(every) - 1, EVALUATIONS).round().astype(int))]
        questions = self._tables.rows(
            f"SELECT key, coalesce(any_value(left(task, {NAME})), '') AS task, "
            f"coalesce(any_value(left(prompt, {TOLD})), '') AS question, any_value(left(answer, {SHOWN})) AS answer, "
            f"any_value(left(identity, {NAME})) AS identity, "
            f"min(round) FILTER (WHERE reward >= 1) AS first_right, "
            f"arg_min(left(completion, {SHOWN}), round) AS said_before, arg_min(reward, round) AS before, "
            f"arg_max(left(completion, {SHOWN}), round) AS said_now, arg_max(reward, round) AS now "
            f"FROM {own} GROUP BY key ORDER BY 2, 3, 1 LIMIT {QUESTIONS}",
            values,
        )
        for question in questions:
            task = re.sub(r"(#\d+)?(@\d+)?$", "", question["task"])  # without the number of a level or a repetition
            question["pictures"] = identified(task, question.pop("identity"))
        told: Data = {"questions": questions, "rounds": shown, "evaluations": len(every), "answers": []}
        for chosen in [question for question in questions if question["key"] == query.question]:
            rounds = ", ".join(map(str, {*shown, chosen["first_right"]} - {None}))
            answers = self._tables.rows(
                f"SELECT round, left(completion, {TOLD}) AS completion, reward, {HELD} FROM {own} "
                f"WHERE key = $key AND round IN ({rounds}) ORDER BY round",
                values | {"key": chosen["key"]},
            )
            for answer in answers:
                answer["conversation"] = turns_of(answer["conversation"])
            told["answers"] = answers
        return told
