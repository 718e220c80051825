"""Who learned from whom in a run: `learned.parquet` as arrows and shares."""

from __future__ import annotations

from shoal.apps.watch.source import EDGES, NAME, Data, GraphQuery
from shoal.apps.watch.tables import Row, Tables, parquet
from shoal.runs.tables import LEARNED


class Exchange:
    """What nodes took of each other, in the folder that `tables` reads."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def graph(self, query: GraphQuery) -> Data:
        """Arrows from makers to learners, the heaviest first: rollouts, how many were live, their mean reward."""
        parts = self._tables.parts(LEARNED)
        if not parts:
            return {"edges": [], "more": False}
        files = parquet(parts.values())
        recent = f"AND round > (SELECT max(round) - $rounds FROM {files})" if query.rounds else ""
        edges = self._tables.rows(
            f"SELECT left(maker, {NAME}) AS maker, left(node, {NAME}) AS node, "
            "count(*) AS rollouts, count_if(live) AS live, avg(mean_reward) AS reward "
            f'FROM {files} WHERE "foreign" {recent} GROUP BY 1, 2 ORDER BY rollouts DESC, 1, 2 LIMIT {EDGES + 1}',
            {"rounds": query.rounds} if query.rounds else {},
        )
        return {"edges": edges[:EDGES], "more": len(edges) > EDGES}

    def shares(self) -> list[Row]:
        """Each other maker's share of each node's gradient: means over the node's rounds that had one."""
        parts = self._tables.parts(LEARNED)
        if not parts:
            return []
        files = parquet(parts.values())
        return self._tables.rows(
            f"WITH rounds AS "
            f"(SELECT node, count(DISTINCT round) AS n FROM {files} WHERE gradient_share > 0 GROUP BY 1) "
            f"SELECT left(l.node, {NAME}) AS node, left(maker, {NAME}) AS maker, sum(gradient_share) / any_value(n) AS "
            f'share FROM {files} l JOIN rounds USING (node) WHERE "foreign" GROUP BY 1, 2 HAVING share > 0 '
            "ORDER BY share DESC, 1, 2 LIMIT 1000"
        )
