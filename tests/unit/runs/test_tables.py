"""The tables of a run: whose rollouts a node learned from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import UserError
from shoal.runs.tables import LEARNED, LEARNED_SCHEMA, Table, read_makers


def learned(maker: str, share: float | None, foreign: bool = True) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(LEARNED_SCHEMA.names) | {"node": "ada", "maker": maker, "foreign": foreign}
    return row | {"gradient_share": share}


def shares(run: Path) -> dict[str, float]:
    return {maker: share for maker, _, share in read_makers(run, "ada")[1]}


def test_shares_are_means_over_rounds_and_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.runs.tables.PART_BYTES", 0)
    assert shares(tmp_path) == {}
    table = Table(tmp_path / LEARNED, LEARNED_SCHEMA)
    table.add(1, [learned("bob", 0.1), learned("bob", 0.1), learned("ada", 0.8, foreign=False)])
    table.write()
    table.add(2, [learned("eve", 0.5), learned("bob", 0.2), learned("ada", 0.3, foreign=False)])
    table.write()
    table.add(3, [learned("bob", None), learned("ada", None, foreign=False)])  # no update: nothing is live
    table.write()
    assert len(list((tmp_path / LEARNED).iterdir())) == 3
    assert shares(tmp_path) == pytest.approx({"eve": 0.25, "bob": 0.2})
    assert list(shares(tmp_path)) == ["eve", "bob"]


def test_what_is_no_table_is_one_line(tmp_path: Path) -> None:
    (tmp_path / LEARNED).mkdir()
    part = tmp_path / LEARNED / "from-round-000001.parquet"
    part.write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(UserError, match="cannot read"):
        shares(tmp_path)
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(UserError, match="not an ordinary file"):
        shares(tmp_path)
