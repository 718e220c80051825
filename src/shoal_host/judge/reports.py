"""What a judge's records say: the leaderboard.

pass@1 is the share of right answers among the questions: lapsed ones are wrong, void ones are left out. Intervals are
Wilson's, for one node alone: nodes of a swarm learn from each other.

The leaderboard counts each node's last 100 questions. A node with fewer than 50 answers has no rank. The others are
ordered by the lower end of the interval: the luckiest of many keys stands below a node that has answered more.
"""

import contextlib
import math
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from shoal.config.display_name import harmless
from shoal.evaluation.pass_at_k import wilson
from shoal.identity.keys import name_of
from shoal.untrusted import UNDECODABLE
from shoal_host.judge.messages import Ask
from shoal_host.judge.records import connect

Report = dict[str, Any]
COUNTED: Final = 100
"""Questions of each node, the last, that the leaderboard counts."""
RANKED: Final = 50
"""Answers of these that a rank takes."""
FROM: Final = "FROM asks a JOIN nodes n ON n.id = a.node JOIN outcomes o ON o.ask = a.id"
NODE: Final = "name_of(key) AS node, lower(hex(key)) AS key"
BOARD: Final = f"""
WITH latest AS (SELECT node, model, max(number) AS number FROM asks GROUP BY node, model), counted AS (
  SELECT n.key, a.model, iif(min(a.in_swarm) = max(a.in_swarm), min(a.in_swarm), NULL) AS in_swarm,
    sum(o.outcome = 'scored' AND o.score >= 1) AS good, sum(o.outcome = 'scored') >= {RANKED} AS ranked,
    sum(o.outcome != 'void') AS questions, sum(o.outcome = 'lapsed') AS lapsed, sum(o.outcome = 'void') AS void,
    max(a.round) AS round, max(a.asked) AS time, a.node AS id
  FROM latest JOIN asks a ON a.node = latest.node AND a.model = latest.model AND a.number > latest.number - {COUNTED}
    JOIN nodes n ON n.id = a.node JOIN outcomes o ON o.ask = a.id GROUP BY n.key, a.model)
SELECT iif(ranked, row_number() OVER best, NULL) AS rank, {NODE},
  display_name((SELECT statement FROM asks WHERE node = counted.id ORDER BY round DESC LIMIT 1)) AS display_name, model,
  in_swarm, 1.0 * good / questions AS "pass@1", low(good, questions) AS low, high(good, questions) AS high, questions,
  lapsed, void, round, time FROM counted
  WINDOW best AS (ORDER BY ranked DESC, low(good, questions) DESC, counted.key, model)
  ORDER BY row_number() OVER best LIMIT $most
"""


def read(path: Path, sql: str, values: Mapping[str, Any] | None = None, patience: float = math.inf) -> Iterator[Report]:
    """The rows of a query over the records in `path`. SQL may call `name_of(key)`, `display_name(statement)` of an Ask,
    and `low` and `high` for the ends of Wilson's interval. Raises `UserError` if the file cannot be opened,
    `sqlite3.OperationalError` after `patience` seconds."""
    with contextlib.closing(connect(path, read_only=True)) as records:
        records.create_function("name_of", 1, name_of, deterministic=True)
        records.create_function("display_name", 1, _display_name, deterministic=True)
        for place, end in enumerate(("low", "high")):
            interval = lambda good, n, place=place: wilson(good / n, n)[place] if n else float(place)  # noqa: E731
            records.create_function(end, 2, interval, deterministic=True)
        timer = threading.Timer(min(patience, threading.TIMEOUT_MAX), records.interrupt)
        timer.daemon = True
        timer.start()
        try:
            found = records.execute(sql, values or {})
            names = [column[0] for column in found.description]
            for row in found:
                report = dict(zip(names, row, strict=True))
                if report.get("in_swarm") is not None:
                    report["in_swarm"] = bool(report["in_swarm"])
                yield report
        finally:
            timer.cancel()


def leaderboard_of(path: Path, most: int = -1) -> list[Report]:
    """A row for each node and model, the best first, over its last `COUNTED` questions; those without a rank
    (None) come last. `most` rows."""
    return list(read(path, BOARD, {"most": most}))


def _display_name(statement: bytes) -> str:
    """What a node calls itself in its Ask; "" if that may not be shown, or the file is not a judge's."""
    try:
        return harmless(msgspec.msgpack.decode(statement, type=Ask).display_name)
    except (*UNDECODABLE, TypeError):
        return ""
