"""The measures of a run, by hand on small made-up rows."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shoal.apps.lab.measures import (
    area,
    best_to_last,
    final,
    forgetting,
    held_out,
    lags,
    learners,
    oscillation,
    series,
    summary,
    tasks,
    time_to_threshold,
    tokens_generated,
    totals,
)

Row = dict[str, Any]


def row(node: str, round: int, **figures: Any) -> Row:
    """`__` in a name stands for `/`."""
    return {"round": round, "node": node, "time": 0.0} | {k.replace("__", "/"): v for k, v in figures.items()}


def evaluated(node: str, round: int, both: float | None, gcd: float | None, lcm: float | None) -> Row:
    return {"round": round, "node": node, "eval/pass@1": both, "eval/pass@1/gcd": gcd, "eval/pass@1/lcm": lcm}


def trained(node: str, round: int, reward: float | None, tokens: int | None, refused: int = 0) -> Row:
    return {
        "round": round,
        "node": node,
        "reward/local": reward,
        "reward/trained_on": 0.5,
        "rollouts/wanted": 4,
        "rollouts/refused": refused,
        "tokens/generated": tokens,
        "tokens/trained": 10,
        "learner/steps": 1,
    }


# ada learns gcd at once and forgets some of it, bob learns it late and lcm never; eve has no learner and no tokens.
ROWS = [
    evaluated("ada", 0, 0.0, 0.0, 0.0),
    evaluated("bob", 0, 0.0, 0.0, 0.0),
    trained("ada", 1, 0.1, 100, 1),
    trained("bob", 1, None, 10),
    row("eve", 1, reward__local=0.9, reward__trained_on=None, rollouts__wanted=None, tokens__generated=None),
    trained("ada", 2, 0.2, 100, 3) | evaluated("ada", 2, 0.4, 0.6, 0.2),
    trained("bob", 2, 0.3, 10) | evaluated("bob", 2, 0.1, 0.2, 0.0),
    row("eve", 2, reward__local=0.9, reward__trained_on=None, rollouts__wanted=None, tokens__generated=5),
    trained("ada", 4, 0.4, 200, 2) | evaluated("ada", 4, 0.4, 0.5, 0.3),
    trained("bob", 4, 0.5, 20) | evaluated("bob", 4, 0.3, 0.6, None),
]


def test_series_leave_out_what_was_not_measured() -> None:
    assert series(ROWS, "reward/local")["bob"] == {2: 0.3, 4: 0.5}
    assert series(ROWS, "no such figure") == {}
    assert series([row("a", 2, x=math.nan), row("a", 1, x=1), row("a", 1, x=3)], "x") == {"a": {1: 3.0}}
    assert tasks(ROWS) == ["gcd", "lcm"]
    assert tasks([]) == []


def test_held_out_curves() -> None:
    assert held_out(ROWS) == {"ada": {0: 0.0, 2: 0.4, 4: 0.4}, "bob": {0: 0.0, 2: 0.1, 4: 0.3}}
    assert held_out(ROWS, "lcm") == {"ada": {0: 0.0, 2: 0.2, 4: 0.3}, "bob": {0: 0.0, 2: 0.0}}
    assert held_out(ROWS, "sum") == {}


def test_learners_are_the_nodes_that_train() -> None:
    assert learners(ROWS) == ["ada", "bob"]
    assert learners([row("solo", 1, rollouts__wanted=0)]) == ["solo"]  # 8/0 trains too
    assert learners([]) == []


def test_tokens_add_up_until_one_number_is_missing() -> None:
    assert tokens_generated(ROWS) == {
        "ada": {0: 0, 1: 100, 2: 200, 4: 400},
        "bob": {0: 0, 1: 10, 2: 20, 4: 40},
        "eve": {0: 0},
    }


def test_area_is_a_mean_height() -> None:
    assert area({0: 0.0, 2: 0.4, 4: 0.4}) == pytest.approx((0.4 + 0.8) / 4)
    assert area({10: 0.5, 20: 0.5}) == 0.5
    assert area({0: 0.0, 1: 1.0, 10: 1.0}) == pytest.approx(9.5 / 10)  # distances count
    assert area({10: 1.0, 0: 0.0}) == 0.5  # in any order
    assert area({3: 0.7}) == 0.7
    assert area({}) is None


def test_area_ends_where_it_is_told() -> None:
    curve = {0: 0.0, 2: 0.4, 4: 0.4}
    assert area(curve, 2) == pytest.approx(0.2)
    assert area(curve, 1) == pytest.approx(0.1)
    assert area(curve, 3) == pytest.approx((0.4 + 0.4) / 3)
    assert area(curve, 4) == area(curve)
    assert area(curve, 5) is None
    assert area({2: 0.4, 4: 0.4}, 1) is None
    assert area(curve, 0) == 0.0
    assert area({3: 0.7}, 3) == 0.7


def test_area_along_tokens() -> None:
    curve = held_out(ROWS)["ada"]
    tokens = tokens_generated(ROWS)["ada"]
    assert area(curve, along=tokens) == pytest.approx((200 * 0.2 + 200 * 0.4) / 400)
    assert area(curve, 300, tokens) == pytest.approx((200 * 0.2 + 100 * 0.4) / 300)
    assert area(curve, 401, tokens) is None
    assert area({1: 0.2, 2: 0.4}, along={}) is None
    assert area({0: 0.2, 2: 0.4}, along={0: 0.0, 2: 0.0}) == 0.4  # nothing was generated: the last height
    assert area({0: 0.2, 1: 0.4, 2: 0.4}, 5.0, {0: 0.0, 1: 0.0, 2: 10.0}) == pytest.approx(0.4)


def test_final_is_the_mean_of_the_last_tenth() -> None:
    assert final({round: float(round) for round in range(20)}) == 18.5
    assert final({round: float(round) for round in range(30)}) == 28.0
    assert final({round: float(round) for round in range(11)}) == 9.5  # rounded up
    assert final({0: 0.1, 5: 0.3}) == 0.3
    assert final({0: 0.1}) == 0.1
    assert final({}) is None
    assert final({0: 1.0, 1: 2.0, 2: 3.0}, share=0.5) == 2.5


def test_time_to_threshold() -> None:
    curve = {0: 0.0, 5: 0.3, 10: 0.1, 15: 0.3, 20: 0.4}
    assert time_to_threshold(curve, 0.3) == 5
    assert time_to_threshold(curve, 0.3, hold=2) == 15
    assert time_to_threshold(curve, 0.3, hold=3) is None
    assert time_to_threshold(curve, 0.5) is None
    assert time_to_threshold(curve, 0.0) == 0
    assert time_to_threshold({}, 0.1) is None


def test_lags() -> None:
    assert lags(ROWS, 0.5) == {"gcd": {"ada": 0, "bob": 2}}
    assert lags(ROWS, 0.2) == {"gcd": {"ada": 0, "bob": 0}, "lcm": {"ada": 0, "bob": None}}
    assert lags(ROWS, 0.9) == {}


def test_forgetting() -> None:
    curves = {"gcd": {0: 0.0, 2: 0.6, 4: 0.5}, "lcm": {0: 0.0, 2: 0.2, 4: 0.3}}
    assert forgetting({"gcd": curves["gcd"]}) == pytest.approx(0.1)
    assert forgetting(curves) == pytest.approx((0.1 - 0.1) / 2)  # the best *earlier*: gains count below 0
    assert forgetting(curves | {"sum": {0: 0.9}}) == pytest.approx(0.0)  # one evaluation tells nothing
    assert forgetting({"sum": {0: 0.9}}) is None
    assert forgetting({}) is None


def test_best_to_last() -> None:
    assert best_to_last({0: 0.1, 5: 0.4, 10: 0.3}) == pytest.approx(0.1)
    assert best_to_last({0: 0.1, 5: 0.4}) == 0
    assert best_to_last({0: 0.1}) == 0
    assert best_to_last({}) is None


def test_oscillation_is_about_the_trend() -> None:
    line = {round: 0.1 + 0.02 * round for round in (0, 5, 10, 15, 20, 22)}
    assert oscillation(line) == pytest.approx(0, abs=1e-12)  # with unequal distances too
    # +1, -1, +1: the mean of three is 1/3 or -1/3, the distance 2/3 or 4/3
    assert oscillation({0: 1.0, 1: -1.0, 2: 1.0}, window=3) == pytest.approx(4 / 3)
    zigzag = {round: (-1.0) ** round + 0.3 * round for round in range(11)}
    assert oscillation(zigzag) == pytest.approx(4 / 5)  # 1 - 1/5, whatever the slope
    assert oscillation({0: 0.1, 1: 0.2}) is None


def test_totals() -> None:
    found = totals(ROWS)
    assert found["ada"] == {"rounds": 3, "updates": 3, "tokens/generated": 400, "tokens/trained": 30, "refused": 5}
    assert found["bob"]["refused"] == 0
    assert found["eve"] == {"rounds": 2, "updates": 0, "tokens/generated": None, "tokens/trained": 0, "refused": 0}
    before = totals(ROWS[:2])["ada"]
    assert before == {"rounds": 0, "updates": 0, "tokens/generated": 0, "tokens/trained": 0, "refused": 0}


def test_summary_by_hand() -> None:
    found = summary(ROWS, threshold=0.5, hold=1)
    assert found == pytest.approx(
        {
            "held_out/area_per_update": (0.3 + 0.125) / 2,
            "held_out/area_per_token": None,  # of too few evaluations
            "held_out/start": 0.0,
            "held_out/final": (0.4 + 0.3) / 2,
            "held_out/gain": (0.4 + 0.3) / 2,
            "held_out/forgetting": ((0.1 - 0.1) / 2 + (-0.4 + 0.0) / 2) / 2,
            "held_out/oscillation": None,
            "held_out/best_to_last": 0.0,
            "threshold/reached": 2 / 4,
            "threshold/rounds": (2 + 4 + 4 + 2) / 4,  # bob's lcm was last evaluated in round 2
            "threshold/lag": 2.0,
            "task/gcd/area_per_update": (1.7 / 4 + 1.0 / 4) / 2,
            "task/gcd/final": (0.5 + 0.6) / 2,
            "task/lcm/area_per_update": (0.7 / 4 + 0.0) / 2,  # bob's until round 2
            "task/lcm/final": (0.3 + 0.0) / 2,
            "cumulative/reward/local": 0.7 + 0.8,
            "cumulative/reward/trained_on": 3.0,
            "mean/gradient/external": None,
            "mean/external/ess": None,
            "mean/external/gated": None,
            "per_node/tokens/generated": (400 + 40) / 2,
            "total/rounds": 8,
            "total/updates": 6,
            "total/tokens/generated": None,
            "total/tokens/trained": 60,
            "total/refused": 5,
        }
    )


def climbing(node: str, tokens: int) -> list[Row]:
    """Five evaluations from 0 to 0.4."""
    rows = [trained(node, round, 0.1, tokens) | evaluated(node, round, round / 10, 0, 0) for round in range(1, 5)]
    return [evaluated(node, 0, 0.0, 0, 0), *rows]


def test_summary_leaves_no_node_out_in_silence() -> None:
    rows = [*climbing("ada", 100), *climbing("bob", 50)]
    found = summary(rows, threshold=0.5, tokens=200, nodes=["bob"])
    assert found["held_out/area_per_token"] == pytest.approx(0.2)
    assert summary(rows, threshold=0.5, tokens=300, nodes=["bob"])["held_out/area_per_token"] is None  # it made 200
    assert summary(rows, threshold=0.5, tokens=300, nodes=["ada"])["held_out/area_per_token"] == pytest.approx(0.15)
    assert summary(rows, threshold=0.5, tokens=300)["held_out/area_per_token"] is None
    assert summary(rows, threshold=0.5, tokens=200)["held_out/area_per_token"] is None  # ada had three evaluations
    assert summary(ROWS, threshold=0.5, rounds=2)["held_out/area_per_update"] == pytest.approx((0.2 + 0.05) / 2)


def test_one_lucky_evaluation_is_no_learning() -> None:
    passes = {0: 0.0, 1: 0.2, 2: 0.0, 3: 0.2, 4: 0.2}
    rows = [evaluated("ada", round, value, value, 0.0) for round, value in passes.items()]
    found = summary(rows, threshold=0.1)
    assert (found["threshold/reached"], found["threshold/rounds"]) == (1 / 2, (3 + 4) / 2)


def test_summary_counts_who_never_learns_with_the_end() -> None:
    rows = [
        evaluated(node, round, 0, round / 10 if node == "ada" else 0, 0)
        for node in ("ada", "bob")
        for round in (0, 4, 8)
    ]
    found = summary(rows, threshold=0.4, hold=1)
    assert found["threshold/reached"] == 1 / 4
    assert found["threshold/rounds"] == (4 + 8 + 8 + 8) / 4
    assert found["threshold/lag"] == 4
    assert summary(rows, threshold=0.9)["threshold/lag"] is None


@pytest.mark.parametrize(
    "rows", [[], ROWS[:1], [row("eve", 1, reward__local=None)], [evaluated("ada", 0, math.nan, None, 1)]]
)
def test_summary_of_little(rows: list[Row]) -> None:
    found = summary(rows, threshold=0.5)
    every = {key for key in summary(ROWS, threshold=0.5) if not key.startswith("task/")}
    assert {key for key in found if not key.startswith("task/")} == every
    assert found["held_out/forgetting"] is None
    assert found["held_out/oscillation"] is None
    assert all(value is None or math.isfinite(value) for value in found.values())


def test_summary_of_what_others_gave() -> None:
    rows = [
        row("ada", 1, gradient__external=0.2, external__ess=0.9, external__gated=0.0, rollouts__wanted=4),
        row("ada", 2, gradient__external=0.4, external__ess=None, external__gated=0.5, rollouts__wanted=4),
        row("bob", 1, gradient__external=0.6, external__ess=0.3, rollouts__wanted=4),
    ]
    found = summary(rows, threshold=0.5)
    assert found["mean/gradient/external"] == pytest.approx(0.4)
    assert found["mean/external/ess"] == pytest.approx(0.6)
    assert found["mean/external/gated"] == pytest.approx(0.25)
    assert found["held_out/gain"] is found["held_out/start"] is None


def test_there_is_no_gain_without_a_start() -> None:
    found = summary([evaluated("ada", 3, 0.5, 0.5, 0.5), evaluated("bob", 0, 0.1, 0, 0)], threshold=0.5)
    assert found["held_out/gain"] is found["held_out/start"] is None
    assert found["held_out/final"] == pytest.approx(0.3)


def test_summary_of_one_evaluation() -> None:
    found = summary(ROWS[:1], threshold=0.5)
    assert found["held_out/area_per_update"] == found["held_out/final"] == 0.0
    assert found["held_out/area_per_token"] is None
    assert found["threshold/reached"] == 0
    assert found["cumulative/reward/local"] is None


def test_a_swarm_in_which_nobody_trains_is_measured_too() -> None:
    frozen = [row(node, 1, reward__local=0.1, rollouts__wanted=None) for node in ("ada", "bob")]
    assert summary(frozen, threshold=0.5)["cumulative/reward/local"] == pytest.approx(0.2)
