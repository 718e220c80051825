"""The measures of a run, by hand on small made-up rows."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from shoal_lab.measures import (
    area,
    curves,
    final,
    flops,
    forgetting,
    held_out,
    metrics_frame,
    series,
    summary,
    tasks,
    totals,
)

Row = dict[str, Any]


def row(node: str, round: int, **figures: Any) -> Row:
    """`__` in a name stands for `/`."""
    return {"round": round, "node": node, "time": 0.0} | {k.replace("__", "/"): v for k, v in figures.items()}


def evaluated(node: str, round: int, both: float | None, gcd: float | None, lcm: float | None) -> Row:
    passed = {"eval/pass@1": both, "eval/pass@1/gcd": gcd, "eval/pass@1/lcm": lcm}
    return {"round": round, "node": node, "eval/blind": 0.05, **passed}


def trained(node: str, round: int, reward: float | None, tokens: int | None, refused: int = 0) -> Row:
    return {
        "round": round,
        "node": node,
        "reward/local": reward,
        "reward/trained_on": 0.5,
        "rollouts/wanted": 4,
        "rollouts/refused": refused,
        "rollouts/live_local": refused,
        "tokens/generated": tokens,
        "tokens/trained": 10,
        "flops/generate": None if tokens is None else tokens - 10,
        "flops/learn": 10,
        "learner/steps": 1,
    }


# ada learns gcd at once and forgets some of it, bob learns it late and lcm never; eve has no learner and no tokens.
ROWS: list[Row] = [
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


METRICS = metrics_frame(ROWS)
NONE = pytest.approx(math.nan, nan_ok=True)


def curve(values: dict[int, float]) -> pd.Series:
    return pd.Series(values, dtype=float)


def plain(table: pd.DataFrame) -> dict[str, dict[int, float]]:
    return {node: each.to_dict() for node, each in curves(table).items()}


def summarised(rows: list[Row], **settings: Any) -> dict[str, float]:
    return summary(metrics_frame(rows), **settings)


def test_series_leave_out_what_was_not_measured() -> None:
    assert plain(series(METRICS, "reward/local"))["bob"] == {2: 0.3, 4: 0.5}
    assert series(METRICS, "no such figure").empty
    twice = metrics_frame([row("a", 2, x=math.inf), row("a", 1, x=1), row("a", 1, x=3)])
    assert plain(series(twice, "x")) == {"a": {1: 3.0}}
    assert tasks(METRICS) == ["gcd", "lcm"]
    assert tasks(metrics_frame([])) == []


def test_held_out_curves() -> None:
    assert plain(held_out(METRICS)) == {"ada": {0: 0.0, 2: 0.4, 4: 0.4}, "bob": {0: 0.0, 2: 0.1, 4: 0.3}}
    assert plain(held_out(METRICS, "lcm")) == {"ada": {0: 0.0, 2: 0.2, 4: 0.3}, "bob": {0: 0.0, 2: 0.0}}
    assert held_out(METRICS, "sum").empty


def test_tokens_add_up_until_one_number_is_missing() -> None:
    assert {node: sums.to_dict() for node, sums in totals(METRICS, "tokens/generated").items()} == {
        "ada": {0: 0, 1: 100, 2: 200, 4: 400},
        "bob": {0: 0, 1: 10, 2: 20, 4: 40},
        "eve": {0: 0},
    }


def test_flops_are_those_of_answering_and_learning() -> None:
    assert {node: sums.to_dict() for node, sums in flops(METRICS).items()} == {
        "ada": {0: 0, 1: 100, 2: 200, 4: 400},
        "bob": {0: 0, 1: 10, 2: 20, 4: 40},
        "eve": {0: 0},
    }
    frozen = metrics_frame([row("ada", 1, flops__generate=5), row("ada", 2, flops__generate=6, flops__learn=None)])
    assert flops(frozen)["ada"].to_dict() == {0: 0, 1: 5, 2: 11}


def test_area_is_a_mean_height() -> None:
    assert area(curve({0: 0.0, 2: 0.4, 4: 0.4})) == pytest.approx((0.4 + 0.8) / 4)
    assert area(curve({10: 0.5, 20: 0.5})) == 0.5
    assert area(curve({0: 0.0, 1: 1.0, 10: 1.0})) == pytest.approx(9.5 / 10)  # distances count
    assert area(curve({3: 0.7})) == 0.7
    assert area(curve({})) == NONE


def test_area_ends_at_a_given_round() -> None:
    some = curve({0: 0.0, 2: 0.4, 4: 0.4})
    assert area(some, 2) == pytest.approx(0.2)
    assert area(some, 1) == pytest.approx(0.1)
    assert area(some, 3) == pytest.approx((0.4 + 0.4) / 3)
    assert area(some, 4) == area(some)
    assert area(some, 5) == NONE
    assert area(curve({2: 0.4, 4: 0.4}), 1) == NONE
    assert area(some, 0) == 0.0
    assert area(curve({3: 0.7}), 3) == 0.7


def test_area_along_tokens() -> None:
    ada, tokens = held_out(METRICS)["ada"].dropna(), totals(METRICS, "tokens/generated")["ada"]
    assert area(ada, along=tokens) == pytest.approx((200 * 0.2 + 200 * 0.4) / 400)
    assert area(ada, 300, tokens) == pytest.approx((200 * 0.2 + 100 * 0.4) / 300)
    assert area(ada, 401, tokens) == NONE
    assert area(curve({1: 0.2, 2: 0.4}), along=curve({})) == NONE
    nothing = curve({0: 0.0, 2: 0.0})
    assert area(curve({0: 0.2, 2: 0.4}), along=nothing) == 0.4  # nothing was generated: the last height
    late = curve({0: 0.0, 1: 0.0, 2: 10.0})
    assert area(curve({0: 0.2, 1: 0.4, 2: 0.4}), 5.0, late) == pytest.approx(0.4)


def test_final_is_the_mean_of_the_last_tenth() -> None:
    for count, mean in ((20, 18.5), (30, 28.0), (11, 9.5)):  # rounded up
        assert final(curve({round: float(round) for round in range(count)})) == mean
    assert final(curve({0: 0.1, 5: 0.3})) == 0.3
    assert final(curve({0: 0.1})) == 0.1
    assert final(curve({})) == NONE
    assert final(curve({0: 1.0, 1: 2.0, 2: 3.0}), share=0.5) == 2.5


def test_forgetting() -> None:
    gcd, lcm, once = curve({0: 0.0, 2: 0.6, 4: 0.5}), curve({0: 0.0, 2: 0.2, 4: 0.3}), curve({0: 0.9})
    assert forgetting([gcd]) == pytest.approx(0.1)
    assert forgetting([gcd, lcm]) == pytest.approx((0.1 - 0.1) / 2)  # the best *earlier*: gains count below 0
    assert forgetting([gcd, lcm, once]) == pytest.approx(0.0)  # one evaluation tells nothing
    assert forgetting([once]) == NONE
    assert forgetting([]) == NONE


def test_summary_by_hand() -> None:
    found = summarised(ROWS)
    assert found == pytest.approx(
        {
            "held_out/area_per_update": (0.3 + 0.125) / 2,
            "held_out/area_per_flop": math.nan,  # of too few evaluations
            "held_out/start": 0.0,
            "held_out/final": (0.4 + 0.3) / 2,
            "held_out/gain": (0.4 + 0.3) / 2,
            "held_out/blind": 0.05,
            "held_out/shuffled": math.nan,
            "held_out/forgetting": ((0.1 - 0.1) / 2 + (-0.4 + 0.0) / 2) / 2,
            "task/gcd/area_per_update": (1.7 / 4 + 1.0 / 4) / 2,
            "task/gcd/final": (0.5 + 0.6) / 2,
            "task/lcm/area_per_update": (0.7 / 4 + 0.0) / 2,  # bob's until round 2
            "task/lcm/final": (0.3 + 0.0) / 2,
            "cumulative/reward/local": 0.7 + 0.8,
            "cumulative/reward/trained_on": 3.0,
            "mean/gradient/peers": math.nan,
            "mean/rollouts/live_local": (1 + 3 + 2 + 0 + 0 + 0) / 6,
            "mean/peers/ess": math.nan,
            "mean/peers/shortened": math.nan,
            "per_node/tokens/generated": (400 + 40) / 2,
            "per_node/tokens/prompted": math.nan,
            "per_node/tokens/trained": 30,
            "per_node/tokens/read": math.nan,
            "per_node/flops/generate": (370 + 10) / 2,
            "per_node/flops/learn": 30,
            "total/refused": 5,
        },
        nan_ok=True,
    )


def test_a_summary_ends_at_a_round_but_for_the_area_along_compute() -> None:
    """Of a longer run all figures are what the first rounds give, so that arms of different length compare."""
    rows = [*climbing("ada", 100), row("ada", 4, rollouts__refused=9)]
    early, cut = (summarised(rows[:4]), summarised(rows, rounds=3))
    assert cut.pop("held_out/area_per_flop") == pytest.approx(0.2)  # of all five evaluations
    early.pop("held_out/area_per_flop")
    assert cut == pytest.approx(early, nan_ok=True)
    assert cut["held_out/final"] == 0.3
    assert cut["per_node/tokens/generated"] == 300


def climbing(node: str, tokens: int) -> list[Row]:
    """Five evaluations from 0 to 0.4."""
    rows = [trained(node, round, 0.1, tokens) | evaluated(node, round, round / 10, 0, 0) for round in range(1, 5)]
    return [evaluated(node, 0, 0.0, 0, 0), *rows]


def test_without_compute_there_is_no_mean_along_it() -> None:
    """A node that nobody asks anything spends nothing."""
    assert summarised(climbing("ada", 0), compute=0)["held_out/area_per_flop"] == NONE


def test_summary_leaves_no_node_out_in_silence() -> None:
    rows = [*climbing("ada", 100), *climbing("bob", 50)]
    found = summarised(rows, compute=200, nodes=["bob"])
    assert found["held_out/area_per_flop"] == pytest.approx(0.2)
    assert summarised(rows, compute=300, nodes=["bob"])["held_out/area_per_flop"] == NONE  # it made 200
    assert summarised(rows, compute=300, nodes=["ada"])["held_out/area_per_flop"] == pytest.approx(0.15)
    assert summarised(rows, compute=300)["held_out/area_per_flop"] == NONE
    assert summarised(rows, compute=200)["held_out/area_per_flop"] == NONE  # ada had three evaluations
    assert summarised(ROWS, rounds=2)["held_out/area_per_update"] == pytest.approx((0.2 + 0.05) / 2)


@pytest.mark.parametrize(
    "rows", [[], ROWS[:1], [row("eve", 1, reward__local=None)], [evaluated("ada", 0, math.nan, None, 1)]]
)
def test_summary_of_little(rows: list[Row]) -> None:
    found = summarised(rows)
    every = {key for key in summarised(ROWS) if not key.startswith("task/")}
    assert {key for key in found if not key.startswith("task/")} == every
    assert found["held_out/forgetting"] == NONE
    assert all(not math.isinf(value) for value in found.values())


def test_summary_of_what_others_gave() -> None:
    rows = [
        row("ada", 1, gradient__peers=0.2, peers__ess=0.9, peers__shortened=0.0, rollouts__wanted=4),
        row("ada", 2, gradient__peers=0.4, peers__ess=None, peers__shortened=0.5, rollouts__wanted=4),
        row("bob", 1, gradient__peers=0.6, peers__ess=0.3, rollouts__wanted=4),
    ]
    found = summarised(rows)
    assert found["mean/gradient/peers"] == pytest.approx(0.4)
    assert found["mean/peers/ess"] == pytest.approx(0.6)
    assert found["mean/peers/shortened"] == pytest.approx(0.25)
    assert found["held_out/gain"] == NONE
    assert found["held_out/start"] == NONE


def test_there_is_no_gain_without_a_start() -> None:
    found = summarised([evaluated("ada", 3, 0.5, 0.5, 0.5), evaluated("bob", 0, 0.1, 0, 0)])
    assert found["held_out/gain"] == NONE
    assert found["held_out/start"] == NONE
    assert found["held_out/final"] == pytest.approx(0.3)


def test_summary_of_one_evaluation() -> None:
    found = summarised(ROWS[:1])
    assert found["held_out/area_per_update"] == found["held_out/final"] == 0.0
    assert found["held_out/area_per_flop"] == NONE
    assert found["cumulative/reward/local"] == NONE


def test_a_swarm_in_which_nobody_trains_is_measured_too() -> None:
    frozen = [row(node, 1, reward__local=0.1, rollouts__wanted=None) for node in ("ada", "bob")]
    assert summarised(frozen)["cumulative/reward/local"] == pytest.approx(0.2)
