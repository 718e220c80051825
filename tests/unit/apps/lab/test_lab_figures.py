"""The pictures of a report."""

from __future__ import annotations

import csv
import struct
from pathlib import Path

import numpy as np
import pytest

from shoal.apps.lab import figures_held_out, figures_reward
from shoal.apps.lab.drawing import Picture, band, blank, dress, legend, save, style, trailing, window_of
from shoal.apps.lab.figures_gain import Point, apart, draw_gains, points
from shoal.apps.lab.intervals import Interval
from shoal.apps.lab.results import Results, read_results
from shoal.apps.lab.study import Arm, ContrastSpec, Gain
from studies import make_study


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("study")
    return read_results(make_study(folder, seeds=2, nodes=3, rounds=12, arms=["8/0", "6/2", "4/4", "2/6"]))


def test_trailing_mean_begins_where_the_window_is_full() -> None:
    assert trailing({1: 1.0, 2: 3.0, 5: 5.0}, 2) == {2: 2.0, 5: 4.0}
    assert trailing({1: 1.0}, 2) == {}
    assert trailing({2: 4.0, 1: 2.0}, 1) == {1: 2.0, 2: 4.0}
    assert [window_of(rounds) for rounds in (4, 100, 499, 500, 2000)] == [1, 10, 49, 100, 100]


def test_one_seed_has_no_band() -> None:
    value, low, high = band(np.array([[0.1, 0.2]]))
    assert value.tolist() == low.tolist() == high.tolist() == [0.1, 0.2]
    value, low, high = band(np.array([[0.1, 0.2], [0.3, 0.2]]))
    assert value.tolist() == pytest.approx([0.2, 0.2])
    assert low[0] == pytest.approx(0.1)
    assert high.tolist() == pytest.approx([0.3, 0.2])


def test_arms_can_be_told_apart_without_colour() -> None:
    looks = {(str(style(place)["linestyle"]), style(place)["marker"]) for place in range(10)}
    assert len(looks) == 10


def test_a_picture_is_a_png_and_its_numbers(tmp_path: Path) -> None:
    figure = blank(3, 2)
    dress(figure.subplots(), r"$\frac{ 鯖", "x", "y")
    legend(figure, {"8/0": 0, "$x": 1}, 3)
    picture = Picture("one", "", figure, [{"arm": "a", "x": 1 / 3}, {"arm": "b", "note": "c"}])
    save(picture, tmp_path)
    data = (tmp_path / "one.png").read_bytes()
    assert struct.unpack(">II", data[16:24]) == (450, 300)
    assert (tmp_path / "one.csv").read_text() == "arm,x,note\na,0.333333,\nb,,c\n"
    save(picture, tmp_path)
    assert (tmp_path / "one.png").read_bytes() == data


def test_reward_of_each_node(results: Results) -> None:
    runs = results.runs["generalists"]
    picture = figures_reward.by_node("generalists", runs, results.study)
    assert picture.name == "fig1_generalists"
    rows = [row for row in picture.table if row["arm"] == "4/4" and row["node"] == "node-2"]
    kept = [row for row in runs["4/4"][101].rows if row["node"] == "node-2" and row.get("reward/local") is not None]
    assert [row["reward"] for row in rows] == [row["reward/local"] for row in kept]


def test_reward_smoothed(results: Results) -> None:
    picture = figures_reward.moving("generalists", results.runs["generalists"], results.study)
    assert {row["reward"] for row in picture.table} == {"reward/local", "reward/trained_on"}
    assert all(row["low"] <= row["mean"] <= row["high"] for row in picture.table)
    assert "1 round " in picture.caption


def test_swarm_against_isolated(results: Results) -> None:
    runs = results.runs["generalists"]
    picture = figures_reward.against("generalists", runs, results.study)
    assert picture is not None
    last = {row["arm"]: row for row in picture.table if row["round"] == 12}
    sums = [
        sum(row.get("reward/local") or 0 for row in run.rows) / 3 for run in runs["4/4"].values()
    ]  # two seeds: their interquartile mean is their mean
    assert last["4/4"]["cumulative"] == pytest.approx(np.mean(sums))
    assert all(row["adjusted_p"] == 1 for row in picture.table)  # two seeds can show nothing
    assert figures_reward.against("generalists", {"6/2": runs["6/2"]}, results.study) is None


def test_held_out_by_updates_and_tokens(results: Results) -> None:
    runs = results.runs["generalists"]
    picture = figures_held_out.curves("generalists", runs, results.study)
    ends = {(row["along"], row["arm"]): row["x"] for row in picture.table}
    assert ends["updates", "8/0"] == 12
    assert ends["tokens", "8/0"] > 3 * ends["tokens", "2/6"]


def test_spread_shows_specialists_first(results: Results) -> None:
    chosen = figures_held_out.swarm_of(results)
    assert chosen is not None
    assert (chosen[0].cell.regime, chosen[0].cell.arm) == ("specialists", "4/4")
    picture = figures_held_out.spread(results)
    assert picture is not None
    assert {row["what"] for row in picture.table} == {"held out", "first live"}
    assert chosen[1] in picture.caption


def test_gain_of_each_regime(results: Results) -> None:
    gain = results.study.gains["sharing"]
    found = points(results, gain)
    assert {point.regime for point in found} == {"generalists", "specialists"}
    assert found[0].x < found[1].x
    assert draw_gains({"sharing": (gain, found)}) is not None
    assert draw_gains({"sharing": (gain, [])}) is None


@pytest.mark.parametrize("along", ["start", "nodes"])
def test_gain_where_points_meet_or_lack(tmp_path: Path, along: str) -> None:
    gain = Gain.model_validate({"treated": "a", "control": "b", "along": along})
    gains = {"held_out/area_per_update": Interval(0.5, 0.1, 0.6), "per_round/reward/local": None}
    found = [Point(name, x, gains, 3) for name, x in (("dense", 0.0 if along == "start" else 1.0), ("same", 2.0))]
    large = {name: Interval(95.0, 72.0, 151.0) for name in gains}
    picture = draw_gains(
        {"some": (gain, [*found, Point("too", 2.0, gains, 1)]), "most": (gain, [*found, Point("rare", 3.0, large, 6)])}
    )
    assert picture is not None
    assert "Not drawn" in picture.caption
    save(picture, tmp_path)
    rows = list(csv.DictReader((tmp_path / "gain.csv").open()))
    assert [row["gain"] for row in rows] == ["0.5"] * 3 + [""] * 3 + ["0.5", "0.5", "95", "", "", "95"]


def test_points_that_meet_are_moved_apart() -> None:
    assert apart([1.0, 10.0]) == pytest.approx([1, 10])
    one, other = apart([5.0, 5.0])
    assert one < 5 < other
    assert apart([3.0]) == pytest.approx([3.0])


def test_a_figure_draws_eight_arms_those_of_contrasts_first_and_names_the_others(results: Results) -> None:
    one = results.runs["generalists"]["4/4"]
    runs = {f"arm {n}": one for n in range(10)}
    contrasts = {"last": ContrastSpec(treated="arm 9", control="arm 0")}
    study = results.study.model_copy(update={"arms": {arm: Arm() for arm in runs}, "contrasts": contrasts})
    for draw in (figures_held_out.curves, figures_reward.moving, figures_reward.by_node):
        picture = draw("generalists", runs, study)
        assert "Not drawn, but in the table and the CSV: arm 7, arm 8." in picture.caption
        assert {row["arm"] for row in picture.table} == set(runs)
    assert len(picture.figure.axes) == 8
