"""Whose rollouts a node learned from.

read_makers(Path("runs/one"), "node-1")         # (320, [("node-2", 144, 0.48)])
"""

import math
from collections import Counter
from pathlib import Path

from shoal.errors import UserError
from shoal.runs.tables import LEARNED, MOST, records

MAKERS, NAME = 100_000, 200
"""Bounds of what is counted: makers, and characters of their names."""


def read_makers(run: Path, node: str, last: int = 2**53) -> tuple[int, list[tuple[str, int, float]]]:
    """How many own rollouts `node` learned from up to the round `last`; and every other maker's name, number of
    rollouts and mean share of the gradient over the rounds that had an update, the largest first. Raises `UserError`
    for files that are no tables."""
    own, rounds, counts, totals = 0, set[int](), Counter[str](), Counter[str]()
    for row in records(run, LEARNED, ["round", "node", "maker", "peer", "gradient_share"]):
        if row["node"] != node or row["maker"] is None or row["round"] is None or row["round"] > last:
            continue
        share = row["gradient_share"]
        known = share is not None and math.isfinite(share)
        if known:
            rounds.add(row["round"])
        if row["peer"]:
            counts[row["maker"][:NAME]] += 1
            totals[row["maker"][:NAME]] += share if known else 0
        else:
            own += 1
        if len(counts) > MAKERS or len(rounds) > MOST:
            raise UserError(f"{run / LEARNED} names more than {MAKERS:,} makers, or {MOST:,} rounds")
    others = [(maker, count, float(totals[maker]) / max(1, len(rounds))) for maker, count in counts.items()]
    return own, sorted(others, key=lambda item: (-item[2], item[0]))
