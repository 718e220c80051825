"""Who learned from whom, by hand."""

from __future__ import annotations

import math

import pandas as pd

from shoal_lab.report import first_from_others


def learned(*rows: tuple[int, str, str, str, bool]) -> pd.DataFrame:
    """Rows of round, node, maker, task, live."""
    table = pd.DataFrame(rows, columns=["round", "node", "maker", "task", "live"]).astype({"live": bool})
    return table.assign(peer=table["node"] != table["maker"])


TABLE = learned(
    (5, "bob", "bob", "gcd", True),  # parts need not be in order
    (1, "ada", "ada", "gcd", False),
    (2, "ada", "ada", "gcd", True),
    (2, "ada", "bob", "gcd", True),  # in the same round: her own counts
    (3, "bob", "ada", "gcd", True),
    (3, "bob", "eve", "gcd", True),
    (3, "bob", "eve", "gcd", True),
    (4, "bob", "ada", "lcm", False),
)


def test_the_first_live_rollout_of_each_node_and_task() -> None:
    assert first_from_others(TABLE) == 1 / 2  # ada's own in round 2, bob's of others in round 3


def test_nothing_was_learned() -> None:
    dead = learned((1, "ada", "ada", "gcd", False))
    assert all(math.isnan(first_from_others(table)) for table in (learned(), dead))
