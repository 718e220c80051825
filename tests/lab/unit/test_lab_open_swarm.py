"""Open-swarm statistics: what drop-outs and unequal models would feign is not found, and what is there is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from shoal.cli.main import main
from shoal.errors import UserError
from shoal_lab.open_swarm import FEWEST, HEAVIEST, compare_open, inverse, read_records, staying

COLUMNS = ["node", "model", "in_swarm", "round", "score"]


def frame(rows: list[tuple[str, str, bool, int, float]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=COLUMNS)


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
) -> pd.DataFrame:
    """Nodes of both sides that are right with these chances; after each answer one leaves with the chance `leave`,
    three times as often if it was wrong."""
    rng = np.random.default_rng(seed)
    found = []
    for side, chance in ((True, swarm), (False, isolated)):
        for n in range(nodes):
            ability = chance * rng.uniform(1 - spread, 1 + spread)
            for k in range(steps):
                score = float(rng.random() < ability)
                found.append((f"{model}-{side}-{n}", model, side, k, score))
                if rng.random() < leave * (1 if score else 3):
                    break
    return frame(found)


def test_a_difference_is_found_and_grows_in_the_sum() -> None:
    found = compare_open(records(40, 20, 1, swarm=0.6, isolated=0.2), permutations=300)
    assert len(found.cumulative) == 20
    last = found.cumulative.iloc[-1]
    assert last.swarm - last.isolated == pytest.approx(20 * 0.4, rel=0.3)
    assert last.adjusted_p < 0.02
    assert found.cumulative.swarm_nodes[1] == found.cumulative.isolated_nodes[1] == 40


def test_where_there_is_none_few_experiments_find_one() -> None:
    smallest = [
        compare_open(records(12, 10, seed), permutations=99, seed=seed).cumulative.adjusted_p.min()
        for seed in range(60)
    ]
    assert sum(p <= 0.05 for p in smallest) <= 9  # 3 expected over *all* steps; 9 has a chance of 0.3 %


def test_unequal_models_feign_no_difference() -> None:
    many = records(60, 12, 1, swarm=0.8, isolated=0.8, model="strong")
    few = records(60, 12, 2, swarm=0.1, isolated=0.1, model="weak")
    few_of_it = many.node.str[-1].isin(["0", "1"])
    mostly_strong, mostly_weak = many[many.in_swarm | few_of_it], few[~few.in_swarm | few_of_it]
    found = compare_open(pd.concat([mostly_strong, mostly_weak]), permutations=300).cumulative
    assert abs(found.swarm.iloc[-1] - found.isolated.iloc[-1]) / 12 < 0.1  # 0.5 and more by plain means
    assert found.adjusted_p.min() > 0.02


def test_models_of_one_side_are_left_out_and_named() -> None:
    rows = pd.concat([records(5, 4, 1), frame([("x", "rare", True, 0, 1.0)])])
    found = compare_open(rows, permutations=10)
    assert found.models == ["m"]
    assert found.left_out == {"rare": 1}


def test_weights_undo_that_the_bad_leave_sooner() -> None:
    rows = records(3000, 8, 3, swarm=0.4, isolated=0.4, leave=0.1, spread=1.0)
    found = compare_open(rows, permutations=1)
    last = found.per_round.iloc[-1]
    plain, weighted = last.isolated, last.weighted_isolated
    assert plain > 0.42  # those who are left are better than all were
    assert abs(weighted - 0.4) < abs(plain - 0.4)
    assert np.isfinite(last.completers_swarm)


def leavers(nodes: int, steps: int, seed: int) -> tuple[pd.DataFrame, float]:
    """Two populations that are alike, of which swarm nodes that were right in less than half so far leave sooner, and
    what swarm nodes would have in sum had none left."""
    rng = np.random.default_rng(seed)
    scores_NK = (rng.random((2 * nodes, steps)) < rng.random((2 * nodes, 1))).astype(float)
    swarm_N = np.arange(2 * nodes) < nodes
    poor_NK = scores_NK.cumsum(1) / np.arange(1, steps + 1) < 0.5
    leave_NK = rng.random(scores_NK.shape) < 0.03 + 0.1 * (poor_NK & swarm_N[:, None])
    stay_N = np.where(leave_NK.any(1), leave_NK.argmax(1) + 1, steps)
    found = [
        (f"{n}", "m", bool(swarm_N[n]), k, float(scores_NK[n, k])) for n in range(2 * nodes) for k in range(stay_N[n])
    ]
    return frame(found), float(scores_NK[swarm_N].sum(1).mean())


def test_weights_undo_most_of_what_leaving_feigns() -> None:
    plain, weighted = [], []
    for seed in range(5):
        rows, truth = leavers(400, 12, seed)
        last = compare_open(rows, permutations=1).cumulative.iloc[-1]
        plain.append(last.swarm - truth)
        weighted.append(last.weighted_swarm - truth)
    assert np.mean(plain) > 1.2  # of 6
    assert abs(np.mean(weighted)) < np.mean(plain) / 4  # halves by the median of survivors: half of it


def test_unlike_leaving_feigns_no_difference() -> None:
    found = [compare_open(leavers(60, 12, seed)[0], permutations=199, seed=seed) for seed in range(40)]
    least = [each.cumulative.adjusted_p.min() for each in found]
    assert sum(p <= 0.05 for p in least) <= 6  # 2 expected; by those who are there it is 11


def test_sides_that_score_as_unlike_as_can_be_differ() -> None:
    rows = frame(
        [(f"{side}{n}", "m", side, k, float(side)) for side in (True, False) for n in range(8) for k in range(4)]
    )
    found = compare_open(rows, permutations=999)
    assert (found.cumulative.adjusted_p < 0.01).all()  # no node of a side differs from the others
    assert (found.per_round.adjusted_p < 0.01).all()
    assert np.isfinite(found.cumulative).all(axis=None)
    assert (compare_open(rows.assign(score=0.1), permutations=99).cumulative.adjusted_p == 1).all()


def test_the_chance_of_having_stayed_by_hand() -> None:
    nan = np.nan
    scores = np.array([[1.0, 1.0], [1.0, 1.0], [0.0, 1.0], [0.0, nan]])
    group = np.zeros(4, int)
    stay = staying(scores, group)
    assert stay[:, 0].tolist() == [1, 1, 1, 1]
    all_of_them = 3.5 / 5
    high, low = (2 + 2 * all_of_them) / 4, (1 + 2 * all_of_them) / 4
    assert stay[:3, 1] == pytest.approx([high, high, low])
    assert np.isnan(stay[3, 1])
    assert inverse(stay, group)[:, 1] == pytest.approx([1 / high, 1 / high, 1 / low, 0])


def test_no_node_counts_for_too_many() -> None:
    stay = np.array([[1.0], [1e-9], [1.0], [np.nan]])
    weights = inverse(stay, np.zeros(4, int))
    assert weights[:, 0] == pytest.approx([1, HEAVIEST * 4 / 3, 1, 0])


def test_a_model_that_one_side_lost_ends_the_comparison() -> None:
    rows = [(f"a{side}{n}", "a", side, k, 1.0) for side in (True, False) for n in range(3) for k in range(2)]
    rows += [(f"b{n}", "b", True, k, 1.0) for n in range(4) for k in range(9)] + [("b", "b", False, 0, 1.0)]
    rows += [(f"c{n}", "c", False, k, 1.0) for n in range(4) for k in range(9)] + [("c", "c", True, 0, 1.0)]
    assert len(compare_open(frame(rows), permutations=9).cumulative) == 2


def test_too_few_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match=f"fewer than {FEWEST}"):
        compare_open(records(FEWEST - 1, 5, 1))


def test_the_command_draws_and_writes(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    records(4, 6, 1, leave=0.05).to_csv(path, index=False)
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
    assert list(read_records(path).in_swarm) == [False] * 4 + [True] * 3
    for wrong in ({"in_swarm": "yes"}, {"in_swarm": None}, {"score": float("nan")}):
        path.write_text(json.dumps(row | wrong))
        with pytest.raises(UserError, match="no records of a judge"):
            read_records(path)
    path.write_text("{}\n[]")
    with pytest.raises(UserError, match="no records of a judge"):
        read_records(path)
