"""Who learned from whom, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shoal.apps.lab.spread import (
    COLUMNS,
    First,
    Followers,
    first_live,
    followers,
    foreign_share,
    most_gained,
    read_learned,
    taught,
)
from shoal.runs.tables import LEARNED_SCHEMA


def learned(*rows: tuple[int, str, str, str, bool]) -> pa.Table:
    """Rows of round, node, maker, task, live."""
    names = ("round", "node", "maker", "task", "live")
    return pa.Table.from_pylist(
        [dict(zip(names, row, strict=True)) | {"foreign": row[1] != row[2]} for row in rows],
        schema=pa.schema([LEARNED_SCHEMA.field(name) for name in COLUMNS]),
    )


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
    found = first_live(TABLE)
    assert found == {("ada", "gcd"): First(2, ("ada",), False), ("bob", "gcd"): First(3, ("ada", "eve"), True)}
    assert foreign_share(found) == 0.5
    assert first_live(TABLE, ["ada"]).keys() == {("ada", "gcd")}


def test_who_taught_whom() -> None:
    assert taught(TABLE) == {("ada", "bob"): 2, ("bob", "ada"): 1, ("eve", "bob"): 2}
    assert taught(TABLE, ["ada"]) == {("bob", "ada"): 1}


def test_nothing_was_learned() -> None:
    assert first_live(learned()) == taught(learned()) == {}
    assert first_live(learned((1, "ada", "ada", "gcd", False))) == {}
    assert foreign_share({}) is None


def passed(node: str, round: int, **tasks: float) -> dict[str, Any]:
    return {"node": node, "round": round} | {f"eval/pass@1/{task}": value for task, value in tasks.items()}


def test_followers_and_the_task_that_gained_most() -> None:
    rows = [
        *(passed(node, 0, gcd=0.0, lcm=0.0) for node in ("ada", "bob", "eve")),
        *(passed(node, 2, gcd=0.5, lcm=0.0) for node in ("ada", "eve")),
        *(passed(node, 6, gcd=0.5, lcm=0.1) for node in ("ada", "bob", "eve")),
    ]
    assert followers(rows, 0.5, hold=1) == Followers(pairs=2, reached=2, mean_lag=2.0)  # eve 0, bob 4
    assert followers(rows, 0.5) == Followers(pairs=2, reached=1, mean_lag=0.0)  # bob once, which may be luck
    assert followers(rows[:-2], 0.5, hold=1) == Followers(pairs=2, reached=1, mean_lag=0.0)  # bob never
    assert followers(rows, 0.9) == Followers(0, 0, None)
    assert most_gained(rows) == "gcd"
    assert most_gained([]) is None


def test_reading_a_folder_of_parts(tmp_path: Path) -> None:
    assert read_learned(tmp_path / "none") is None
    for number, part in enumerate((TABLE.slice(0, 3), TABLE.slice(3))):
        pq.write_table(part, tmp_path / f"from-round-{number:06d}.parquet")
    (tmp_path / ".from-round-000009.parquet.tmp").write_bytes(b"half")
    table = read_learned(tmp_path)
    assert table is not None
    assert table.column_names == COLUMNS
    assert first_live(table) == first_live(TABLE)
