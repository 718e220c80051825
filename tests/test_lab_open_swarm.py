"""Open-swarm statistics: what drop-outs and unequal models would feign is not found, and what is there is."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from shoal.cli import main
from shoal.lab.open_swarm import FEWEST, Record, compare_open, staying


def records(
    nodes: int,
    steps: int,
    seed: int,
    *,
    swarm: float = 0.3,
    isolated: float = 0.3,
    leave: float = 0.0,
    model: str = "m",
    spread: float = 0.5,
) -> list[Record]:
    """Nodes of both sides that are right with these chances; after each answer one leaves with the chance `leave`,
    three times as often if it was wrong."""
    rng = np.random.default_rng(seed)
    found = []
    for side, chance in ((True, swarm), (False, isolated)):
        for n in range(nodes):
            ability = chance * rng.uniform(1 - spread, 1 + spread)
            for k in range(steps):
                score = float(rng.random() < ability)
                found.append(Record(f"{model}-{side}-{n}", model, side, k, score))
                if rng.random() < leave * (1 if score else 3):
                    break
    return found


def test_a_difference_is_found_and_grows_in_the_sum() -> None:
    found = compare_open(records(40, 20, 1, swarm=0.6, isolated=0.2), permutations=300)
    assert len(found.cumulative) == 20
    last = found.cumulative[-1]
    assert last.difference == pytest.approx(20 * 0.4, rel=0.3)
    assert last.adjusted_p < 0.02
    assert found.cumulative[0].swarm_nodes == found.cumulative[0].isolated_nodes == 40


def test_where_there_is_none_few_experiments_find_one() -> None:
    smallest = [
        min(step.adjusted_p for step in compare_open(records(12, 10, seed), permutations=99, seed=seed).cumulative)
        for seed in range(60)
    ]
    assert sum(p <= 0.05 for p in smallest) <= 9  # 3 expected over *all* steps; 9 has a chance of 0.3 %


def test_unequal_models_feign_no_difference() -> None:
    many = records(60, 12, 1, swarm=0.8, isolated=0.8, model="strong")
    few = records(60, 12, 2, swarm=0.1, isolated=0.1, model="weak")
    mostly_strong = [r for r in many if r.in_swarm] + [r for r in many if not r.in_swarm and r.node[-1] in "01"]
    mostly_weak = [r for r in few if not r.in_swarm] + [r for r in few if r.in_swarm and r.node[-1] in "01"]
    found = compare_open([*mostly_strong, *mostly_weak], permutations=300)
    assert abs(found.cumulative[-1].difference) / 12 < 0.1  # 0.5 and more by plain means
    assert min(step.adjusted_p for step in found.cumulative) > 0.02


def test_models_of_one_side_are_left_out_and_named() -> None:
    rows = [*records(5, 4, 1), Record("x", "rare", True, 0, 1.0)]
    found = compare_open(rows, permutations=10)
    assert found.models == ["m"]
    assert found.left_out == {"rare": 1}


def test_weights_undo_that_the_bad_leave_sooner() -> None:
    rows = records(3000, 8, 3, swarm=0.4, isolated=0.4, leave=0.1, spread=1.0)
    found = compare_open(rows, permutations=1)
    plain, weighted = found.per_round[-1].isolated, found.per_round[-1].weighted[1]
    assert plain > 0.42  # those who are left are better than all were
    assert abs(weighted - 0.4) < abs(plain - 0.4)
    assert found.per_round[-1].completers is not None


def test_the_chance_of_having_stayed_by_hand() -> None:
    nan = np.nan
    scores = np.array([[1.0, 1.0], [1.0, 1.0], [0.0, 1.0], [0.0, nan]])
    stay = staying(scores, np.zeros(4, bool), np.zeros(4, int))
    assert stay[:, 0].tolist() == [1, 1, 1, 1]
    assert stay[:3, 1].tolist() == [1.0, 1.0, 0.5]
    assert np.isnan(stay[3, 1])


def test_too_few_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match=f"fewer than {FEWEST}"):
        compare_open(records(FEWEST - 1, 5, 1))


def test_the_command_draws_and_writes(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    with path.open("w", newline="") as file:
        lines = csv.DictWriter(file, ["node", "model", "in_swarm", "round", "score"])
        lines.writeheader()
        lines.writerows(asdict(record) for record in records(4, 6, 1, leave=0.05))
    assert main(["lab", "open", str(path), "--out", str(tmp_path / "out")]) == 0
    found = json.loads((tmp_path / "out" / "open.json").read_text())
    assert found["cumulative"][0]["swarm_nodes"] == 4
    assert (tmp_path / "out" / "open.png").stat().st_size > 1000
    assert "cumulative" in (tmp_path / "out" / "open.csv").read_text()


def test_what_is_no_record_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    assert main(["lab", "open", str(tmp_path / "x.csv")]) == 2
    assert "it needs in_swarm, model, node, round, score" in capsys.readouterr().err
