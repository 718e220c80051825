"""The filters and the search of rollouts as conditions in SQL."""

from __future__ import annotations

from typing import Any

from shoal_web.watch.source import RolloutQuery

CONDITIONS = {
    "node": "r.node = $node",
    "task": "r.task = $task",
    "least": "reward >= $least",
    "most": "reward <= $most",
    "first": "r.round >= $first",
    "last": "r.round <= $last",
    "live": "live = $live",
    "finish": "finish_reason = $finish",
}
LEARNED_FROM = 'l.maker = r.node AND l.made = r.round AND l.task = r.task AND l.seed = r.seed AND l."index" = r."index"'


def conditions_of(query: RolloutQuery, learned: str | None) -> tuple[list[str], dict[str, Any]]:
    """SQL and values for `query`. `learned`: the rows of what was learned from, if there are any."""
    values: dict[str, Any] = {name: getattr(query, name) for name in CONDITIONS if getattr(query, name) is not None}
    conditions = [CONDITIONS[name] for name in values]
    if query.text:
        conditions.append("(contains(lower(completion), lower($text)) OR contains(lower(r.question), lower($text)))")
        values["text"] = query.text
    if query.learner is not None and learned is None:
        conditions.append("false")
    elif query.learner is not None:
        whom = 'l."foreign"' if query.learner == "*" else "l.node = $learner"
        conditions.append(f"EXISTS (FROM {learned} l WHERE {whom} AND {LEARNED_FROM})")
        values |= {} if query.learner == "*" else {"learner": query.learner}
    return conditions, values
