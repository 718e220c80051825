"""A law in live groups: found again where it holds, and what it says of the machine of a run."""

from __future__ import annotations

import itertools
import json
import math
import sys
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from shoal.errors import UserError
from shoal_lab.law import Point, errors, first_reached, fit, rank_correlation, read_points
from shoal_lab.law_settings import Pilot, divide, divisions, groups_of, line, read_pilots
from shoal_lab.law_text import show_law
from shoal_lab.results import read_results
from studies import make_study

POINTS = [
    Point(regime, f"{live}", live, scale / live**0.6)
    for regime, scale in (("easy", 20.0), ("hard", 900.0))
    for live in (0.5, 1.0, 2.0, 4.0, 8.0)
]


def test_a_law_that_holds_is_found_and_predicts_arms_that_it_has_not_seen() -> None:
    law = fit([point for point in POINTS if point.live not in (2.0, 8.0)])
    assert law.exponent == pytest.approx(0.6)
    assert (law.low, law.high) == (pytest.approx(0.6), pytest.approx(0.6))
    assert law.predict("hard", 3.0) == pytest.approx(900 / 3**0.6)
    unseen = [point for point in POINTS if point.live in (2.0, 8.0)]
    assert errors(law, unseen) == pytest.approx([0.0] * 4)
    assert rank_correlation(law, unseen) == pytest.approx(1.0)
    assert errors(law, [Point("easy", "double", 1.0, 40.0)]) == pytest.approx([1.0])


def test_how_well_a_law_orders_arms_needs_no_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not come with shoal."""
    for name in [name for name in sys.modules if name.split(".")[0] == "scipy"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "scipy", None)
    law = fit(POINTS)
    swapped = [Point("easy", str(live), live, updates) for live, updates in ((1.0, 20.0), (2.0, 5.0), (4.0, 9.0))]
    assert rank_correlation(law, swapped) == pytest.approx(0.5)


def test_too_few_arms_and_arms_that_are_alike_give_no_law() -> None:
    with pytest.raises(UserError, match="at least 3 arms of each regime"):
        fit(POINTS[:7])
    with pytest.raises(UserError, match="same number of live groups"):
        fit([Point("easy", name, 2.0, updates) for name, updates in (("a", 10), ("b", 20), ("c", 30))])


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=4), st.integers(2, 6))
def test_how_many_smaller_groups_would_have_been_live(rewards: list[list[bool]], size: int) -> None:
    """The same as by trying all subsets."""
    groups = [tuple(n for n in (sum(group), 6 - sum(group)) if n) for group in rewards]
    pilot = Pilot(1, 4, 0, False, 1.0, 1.0, 0.0, groups)
    subsets = [some for group in rewards for some in itertools.combinations(group, size)]
    assert pilot.live(size) == pytest.approx(sum(len(set(some)) > 1 for some in subsets) / len(subsets))


def test_a_round_divided_by_hand() -> None:
    """Half of all groups are live: (4, 4) always, (8,) never."""
    pilot = Pilot(
        nodes=3, local=4, external=4, fill=True, answering=0.01, learning=0.02, fixed=0.1, groups=[(4, 4), (8,)]
    )
    one = divide(pilot, 4, 4, 8, True)
    assert one.live == 2 + 4  # own ones; two others give four, of which it would take four and two more
    assert one.seconds == pytest.approx(8 * (4 * 0.01 + 6 * 0.02) + 0.1)
    assert divide(pilot, 4, 2, 8, False).live == 2 + 2
    assert divide(pilot, 4, 0, 8, True).live == 2
    assert one.worth(0.5) == pytest.approx(math.sqrt(6) / one.seconds)


def test_the_best_division_depends_on_what_is_dear() -> None:
    groups = [(4, 4), (7, 1), (8,), (8,)]
    dear_rounds = Pilot(4, 4, 4, True, 0.001, 0.001, 10.0, groups)
    dear_answers = Pilot(4, 4, 4, True, 1.0, 0.001, 0.001, groups)
    most, *_ = divisions(0.5, dear_rounds, {8}, (0.1, 40.0))
    assert most.live == max(one.live for one in divisions(0.5, dear_rounds, {8}, (0.1, 40.0)))
    few, *_ = divisions(0.5, dear_answers, {8}, (0.1, 40.0))
    assert few.external > 0, "others' rollouts are not answered here"
    assert few.local < most.local
    assert all(1.0 <= one.live <= 2.0 for one in divisions(0.5, dear_rounds, {8}, (1.0, 2.0)))


def test_where_a_curve_reaches_a_level() -> None:
    curve = pd.Series([0.0, 0.2, 0.1, 0.6], index=[0, 5, 10, 20])
    assert first_reached(curve, 0.1) == pytest.approx(2.5)
    assert first_reached(curve, 0.35) == pytest.approx(15.0)
    assert first_reached(curve, 0.0) == 0.0
    assert math.isnan(first_reached(curve, 0.7))


def test_a_study_and_its_law(tmp_path: Path) -> None:
    folder = make_study(tmp_path / "study", seeds=2, nodes=3, rounds=40)
    points = read_points(read_results(folder))
    assert {point.arm for point in points} == {"8/0", "6/2", "4/4", "2/6"}
    assert all(point.live > 0 for point in points)
    console = Console(width=120, record=True, file=(tmp_path / "out").open("w"))
    show_law(console, folder, ["2/6"])
    said = console.export_text()
    assert "updates = scale / live ^" in said
    assert "tried: 1 arm," in said
    assert "without generalists: it has 2 arms to fit, and 3 are needed" in said  # 8/0 learned nothing there
    with pytest.raises(UserError, match=r"no such arm; did you mean '2/6'"):
        show_law(console, folder, ["2/7"])


def test_groups_that_lack_completions_do_not_count() -> None:
    rows = [(1, "ada", "sum", 7, 0, reward) for reward in (0, 1, 1)] + [(1, "ada", "sum", 8, 0, 1.0)]
    table = pd.DataFrame(rows, columns=["round", "node", "task", "seed", "index", "reward"])
    assert sorted(groups_of(table)[0]) == [1, 2]
    assert len(groups_of(table)) == 1


def test_what_two_short_runs_measure(tmp_path: Path) -> None:
    small, large = (pilot_run(tmp_path / f"{local}", local) for local in (1, 4))
    pilot = read_pilots([small, large])
    assert (pilot.nodes, pilot.local, pilot.external, pilot.fill) == (4, 4, 4, True)
    assert (pilot.answering, pilot.learning, pilot.fixed) == pytest.approx((0.01, 0.02, 0.5 + 0.25 + 0.125))
    with pytest.raises(UserError, match="add one with another --local"):
        read_pilots([large, large])
    assert "--local" in law_said(tmp_path, small, large)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.toml").write_text("")
    with pytest.raises(UserError, match=r"no learned.parquet yet: a pilot run needs some rounds"):
        read_pilots([small, tmp_path / "new"])


def test_neither_a_round_nor_an_answer_costs_less_than_nothing() -> None:
    assert line([(1, 3.0), (2, 5.0)]) == pytest.approx((1.0, 2.0))
    assert line([(1, 5.0), (2, 3.0)]) == (4.0, 0.0)
    assert line([(1, 0.5), (2, 2.0)]) == pytest.approx((0.0, 0.9))
    assert line([(2, 3.0), (2, 5.0)]) == (4.0, 0.0)


def pilot_run(folder: Path, local: int) -> Path:
    """A run of which 0.5 s of answering, 0.25 s of learning and 0.125 s of scoring are in every round."""
    (folder / "rollouts.parquet").mkdir(parents=True)
    (folder / "learned.parquet").mkdir()
    (folder / "config.toml").write_text(f"[swarm]\nlocal = {local}\n")
    rollouts, learned, lines = [], [], []
    for round in range(1, 5):
        rollouts += [
            {"round": round, "node": "node-1", "seed": slot, "index": 0, "task": "sum", "reward": float(at < 4)}
            for slot in range(local)
            for at in range(8)
        ]
        live = 1 + round % 2
        learned += [{"round": round, "node": "node-1", "live": True}] * live
        seconds = {"seconds/generate": 0.5 + 0.08 * local, "seconds/learn": 0.25 + 0.16 * live, "seconds/score": 0.125}
        lines.append(json.dumps({"round": round, "node": "node-1", **seconds}))
    pd.DataFrame(rollouts).to_parquet(folder / "rollouts.parquet" / "a.parquet")
    pd.DataFrame(learned).to_parquet(folder / "learned.parquet" / "a.parquet")
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def law_said(tmp_path: Path, *pilots: Path) -> str:
    console = Console(width=120, record=True, file=(tmp_path / "said").open("w"))
    show_law(console, make_study(tmp_path / "study", seeds=2, nodes=3, rounds=40), [], pilots)
    return console.export_text()
