"""Who learned from whom, by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from shoal.runs.tables import LEARNED
from shoal_lab.spread import COLUMNS, first_live, read_learned, taught


def learned(*rows: tuple[int, str, str, str, bool]) -> pd.DataFrame:
    """Rows of round, node, maker, task, live."""
    table = pd.DataFrame(rows, columns=["round", "node", "maker", "task", "live"]).astype({"live": bool})
    return table.assign(foreign=table["node"] != table["maker"])


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
    assert found.to_dict("index") == {
        ("ada", "gcd"): {"round": 2, "foreign": False},
        ("bob", "gcd"): {"round": 3, "foreign": True},
    }


def test_who_taught_whom() -> None:
    assert taught(TABLE).to_dict() == {("ada", "bob"): 2, ("bob", "ada"): 1, ("eve", "bob"): 2}


def test_nothing_was_learned(tmp_path: Path) -> None:
    dead = learned((1, "ada", "ada", "gcd", False))
    for table in (learned(), dead, read_learned(tmp_path / LEARNED, ["ada"])):
        assert first_live(table).empty
        assert taught(table).empty
        assert math.isnan(first_live(table)["foreign"].mean())


def test_reading_a_folder_of_parts(tmp_path: Path) -> None:
    folder = tmp_path / LEARNED
    folder.mkdir()
    for number, part in enumerate((TABLE[:3], TABLE[3:])):
        part.to_parquet(folder / f"from-round-{number:06d}.parquet")
    (folder / ".from-round-000009.parquet.tmp").write_bytes(b"half")
    table = read_learned(folder, ["ada", "bob"])
    assert list(table) == COLUMNS
    assert first_live(table).equals(first_live(TABLE))
    assert set(read_learned(folder, ["ada"])["node"]) == {"ada"}
