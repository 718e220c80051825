"""Whose rollouts a node learned from.

read_makers(Path("runs/one"), "node-1")         # (320, [("node-2", 144, 0.48)])
"""

from collections import Counter
from pathlib import Path

import pyarrow.compute as pc

from shoal.errors import UserError
from shoal.runs.tables import LEARNED, MOST, rows_of

MAKERS, NAME = 100_000, 200
"""Bounds of what is counted: makers, and characters of their names."""


def read_makers(run: Path, node: str, last: int = 2**53) -> tuple[int, list[tuple[str, int, float]]]:
    """How many own rollouts `node` learned from up to the round `last`; and every other maker's name, number of
    rollouts and mean share of the gradient over the rounds that had an update, the largest first. Raises `UserError`
    for files that are no tables."""
    own, rounds, counts, totals = 0, set[int](), Counter[str](), Counter[str]()
    for rows in rows_of(run, LEARNED, node, ["round", "node", "maker", "peer", "gradient_share"]):
        mine = rows.filter(pc.less_equal(rows["round"], last)).to_pandas(use_threads=False)
        rounds |= set(mine["round"][mine["gradient_share"].notna()])
        by_maker = mine.groupby(["maker", mine["peer"].fillna(False).astype(bool)], observed=True)
        for (maker, peer), shares in by_maker["gradient_share"]:
            if peer:
                counts[maker[:NAME]] += len(shares)
                totals[maker[:NAME]] += shares.sum()
            else:
                own += len(shares)
        if len(counts) > MAKERS or len(rounds) > MOST:
            raise UserError(f"{run / LEARNED} names more than {MAKERS:,} makers, or {MOST:,} rounds")
    others = [(maker, count, float(totals[maker]) / max(1, len(rounds))) for maker, count in counts.items()]
    return own, sorted(others, key=lambda item: (-item[2], item[0]))
