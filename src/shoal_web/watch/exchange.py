"""Who learned from whom in a run: `learned.parquet` as arrows and shares."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.runs.tables import LEARNED
from shoal_web.watch.source import EDGES, NAME, Data, GraphQuery
from shoal_web.watch.tables import Row, Tables, parquet

SHARES = 1000
"""Shares of a maker in a node's gradient that are shown, at most."""


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
        """Each other maker's share of each node's gradient, the largest: means over the node's rounds that had one."""
        if not (shares := self._shares()):
            return []
        return self._tables.rows(f"{shares} FROM shares ORDER BY share DESC, 1, 2 LIMIT {SHARES}")

    def totals(self, names: Iterable[str]) -> dict[str, Row]:
        """Of each of these nodes: its own share of its gradient, and its shares of the others', added up."""
        if not (shares := self._shares()):
            return {}
        rows = self._tables.rows(
            f"{shares}, learners AS (SELECT DISTINCT left(node, {NAME}) AS node FROM rounds) "
            "SELECT name, CASE WHEN name IN (FROM learners) THEN "
            "1 - coalesce((SELECT sum(share) FROM shares WHERE node = name), 0) END AS own_share, "
            "(SELECT sum(share) FROM shares WHERE maker = name) AS given_share "
            "FROM (SELECT unnest($names::VARCHAR[]) AS name)",
            {"names": list(names)},
        )
        return {row.pop("name"): row for row in rows}

    def _shares(self) -> str:
        """SQL with the table `shares`: all of them; nothing where nothing was learned."""
        parts = self._tables.parts(LEARNED)
        if not parts:
            return ""
        files = parquet(parts.values())
        return (
            f"WITH rounds AS "
            f"(SELECT node, count(DISTINCT round) AS n FROM {files} WHERE gradient_share > 0 GROUP BY 1), "
            f"shares AS (SELECT left(l.node, {NAME}) AS node, left(maker, {NAME}) AS maker, "
            f'sum(gradient_share) / any_value(n) AS share FROM {files} l JOIN rounds USING (node) WHERE "foreign" '
            "GROUP BY 1, 2 HAVING share > 0)"
        )
