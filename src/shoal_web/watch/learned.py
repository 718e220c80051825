"""Who learned from whom in a run: `learned` as arrows and shares, and what a node trained on before it answered right.

lessons = Lessons(tables)
lessons.graph(GraphQuery())                                     # arrows from makers to learners
lessons.makers("node-1")                                        # whose rollouts it trained on
lessons.before("node-1", "gcd", after=10, until=20)["last"]     # the last one of that task in these rounds
"""

import re
from collections.abc import Iterable
from typing import Final

from shoal.runs.tables import LEARNED, ROLLOUTS
from shoal_web.watch.source import EDGES, NAME, SHOWN, Data, GraphQuery
from shoal_web.watch.tables import Row, Tables, parquet

SHARES = 1000
"""Shares of a maker in a node's gradient that are shown, at most."""
MAKERS: Final = 20
"""Of one node that are shown, at most."""
MAKER: Final = f"coalesce(left(maker, {NAME}), '') AS maker, coalesce(\"foreign\", false) AS peer"


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

    def makers(self, node: str) -> list[Row]:
        """Whose rollouts the node trained on. `live`: how many of them had rewards that differ."""
        return self._tables.rows(
            f"SELECT {MAKER}, count(*) AS rollouts, count_if(live) AS live, "
            f"avg(mean_reward) AS reward FROM {self._tables.all(LEARNED)} WHERE left(node, {NAME}) = $node "
            f"GROUP BY 1, 2 ORDER BY peer, rollouts DESC, 1 LIMIT {MAKERS}",
            {"node": node},
        )

    def before(self, node: str, label: str, after: int, until: int) -> Data:
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


def task_of(label: str) -> str:
    """The name of a task: its label has the number of a level or of a repetition behind it."""
    return re.sub(r"(#\d+)?(@\d+)?$", "", label)
