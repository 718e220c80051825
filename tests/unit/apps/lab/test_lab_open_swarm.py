"""Open-swarm statistics: what drop-outs and unequal models would feign is not found, and what is there is."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from shoal.apps.lab.open_statistics import HEAVIEST, inverse, staying
from shoal.apps.lab.open_swarm import FEWEST, Record, compare_open, read_records
from shoal.cli.main import main
from shoal.errors import UserError


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


def leavers(nodes: int, steps: int, seed: int) -> tuple[list[Record], float]:
    """Two populations that are alike, of which swarm nodes that were right in less than half so far leave sooner, and
    what swarm nodes would have in sum had none left."""
    rng = np.random.default_rng(seed)
    scores_NK = (rng.random((2 * nodes, steps)) < rng.random((2 * nodes, 1))).astype(float)
    swarm_N = np.arange(2 * nodes) < nodes
    poor_NK = scores_NK.cumsum(1) / np.arange(1, steps + 1) < 0.5
    leave_NK = rng.random(scores_NK.shape) < 0.03 + 0.1 * (poor_NK & swarm_N[:, None])
    stay_N = np.where(leave_NK.any(1), leave_NK.argmax(1) + 1, steps)
    found = [
        Record(f"{n}", "m", bool(swarm_N[n]), k, float(scores_NK[n, k]))
        for n in range(2 * nodes)
        for k in range(stay_N[n])
    ]
    return found, float(scores_NK[swarm_N].sum(1).mean())


def test_weights_undo_most_of_what_leaving_feigns() -> None:
    plain, weighted = [], []
    for seed in range(5):
        rows, truth = leavers(400, 12, seed)
        last = compare_open(rows, permutations=1).cumulative[-1]
        plain.append(last.swarm - truth)
        weighted.append(last.weighted[0] - truth)
    assert np.mean(plain) > 1.2  # of 6
    assert abs(np.mean(weighted)) < np.mean(plain) / 4  # halves by the median of survivors: half of it


def test_unlike_leaving_feigns_no_difference() -> None:
    found = [compare_open(leavers(60, 12, seed)[0], permutations=199, seed=seed) for seed in range(40)]
    least = [min(step.adjusted_p for step in each.cumulative) for each in found]
    assert sum(p <= 0.05 for p in least) <= 6  # 2 expected; by those who are there it is 11


def test_sides_that_score_as_unlike_as_can_be_differ() -> None:
    rows = [
        Record(f"{side}{n}", "m", side, k, float(side)) for side in (True, False) for n in range(8) for k in range(4)
    ]
    found = compare_open(rows, permutations=999)
    steps = found.cumulative + found.per_round
    assert all(step.adjusted_p < 0.01 for step in steps)  # no node of a side differs from the others
    assert "NaN" not in json.dumps(asdict(found))
    assert "Infinity" not in json.dumps(asdict(found))
    alike = compare_open([Record(r.node, r.model, r.in_swarm, r.round, 0.1) for r in rows], permutations=99)
    assert {step.adjusted_p for step in alike.cumulative} == {1.0}


def test_the_chance_of_having_stayed_by_hand() -> None:
    nan = np.nan
    scores = np.array([[1.0, 1.0], [1.0, 1.0], [0.0, 1.0], [0.0, nan]])
    swarm, models = np.zeros(4, bool), np.zeros(4, int)
    stay = staying(scores, swarm, models)
    assert stay[:, 0].tolist() == [1, 1, 1, 1]
    all_of_them = 3.5 / 5
    high, low = (2 + 2 * all_of_them) / 4, (1 + 2 * all_of_them) / 4
    assert stay[:3, 1] == pytest.approx([high, high, low])
    assert np.isnan(stay[3, 1])
    assert inverse(stay, swarm, models)[:, 1] == pytest.approx([1 / high, 1 / high, 1 / low, 0])


def test_no_node_counts_for_too_many() -> None:
    stay = np.array([[1.0], [1e-9], [1.0], [np.nan]])
    weights = inverse(stay, np.zeros(4, bool), np.zeros(4, int))
    assert weights[:, 0] == pytest.approx([1, HEAVIEST * 4 / 3, 1, 0])


def test_a_model_that_one_side_lost_ends_the_comparison() -> None:
    rows = [Record(f"a{side}{n}", "a", side, k, 1.0) for side in (True, False) for n in range(3) for k in range(2)]
    rows += [Record(f"b{n}", "b", True, k, 1.0) for n in range(4) for k in range(9)] + [Record("b", "b", False, 0, 1.0)]
    rows += [Record(f"c{n}", "c", False, k, 1.0) for n in range(4) for k in range(9)] + [Record("c", "c", True, 0, 1.0)]
    assert len(compare_open(rows, permutations=9).cumulative) == 2


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


def test_words_and_digits_say_who_is_in_the_swarm(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    row = {"node": "a", "model": "m", "in_swarm": "false", "round": 1, "score": 1}
    said = ["false", "False", 0, False, "true", "1", True]
    voided = {**row, "outcome": "void", "score": 0}
    path.write_text("".join(json.dumps({**row, "in_swarm": word}) + "\n" for word in said) + json.dumps(voided))
    assert [record.in_swarm for record in read_records(path)] == [False] * 4 + [True] * 3
    for wrong in ({"in_swarm": "yes"}, {"in_swarm": None}, {"score": float("nan")}):
        path.write_text(json.dumps(row | wrong))
        with pytest.raises(UserError, match="no records of a judge"):
            read_records(path)
    path.write_text("{}\n[]")
    with pytest.raises(UserError, match="no records of a judge"):
        read_records(path)
