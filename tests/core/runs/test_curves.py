"""The picture of a run."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import UserError
from shoal.runs.curves import draw_curves


def rows_of(nodes: list[str], rounds: int) -> list[dict[str, Any]]:
    return [
        {"round": round, "node": node}
        | ({"reward/local": round / rounds} if round else {})
        | ({"eval/pass@1": 0.5, "eval/blind": 0.2} if round % 5 == 0 else {})
        for round in range(rounds + 1)
        for node in nodes
    ]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        rows_of(["ada"], 3),
        rows_of(["ada", "bob"], 40),
        rows_of([f"node{number}" for number in range(30)], 40),
        rows_of(["ada"], 1)[:1],
        [
            {"round": 1, "node": "ada", "reward/local": None},
            {"round": 2, "node": "ada", "reward/local": -1.0},
        ],
        [{"round": 3, "node": "ada", "eval/pass@1": 0.0}],
        [{"round": 1, "node": r"$\frac{ [b] 鯖 a name without end", "reward/local": 1}, *rows_of(["ada"], 2)],
    ],
)
@pytest.mark.filterwarnings("error")
def test_any_rows_give_a_picture(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    first, second = tmp_path / "curves.png", tmp_path / "again.png"
    draw_curves(rows, first, title=r"$\frac{ 鯖")
    draw_curves(rows, second, title=r"$\frac{ 鯖")
    data = first.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (1600, 700)
    assert data == second.read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot write"):
        draw_curves([], tmp_path / "missing" / "curves.png")
