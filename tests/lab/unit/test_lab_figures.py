"""The pictures of a report."""

from __future__ import annotations

import struct
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from shoal_lab import figures
from shoal_lab.figures import DPI, Picture, band, draw, legend, save, style
from shoal_lab.results import Results, read_results
from shoal_lab.study import Arm, ContrastSpec
from studies import make_study


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("study")
    return read_results(make_study(folder, seeds=2, nodes=3, rounds=12, arms=["8/0", "6/2", "4/4", "2/6"]))


def test_one_seed_has_no_band() -> None:
    one = band(pd.DataFrame([[0.1], [0.2]]))
    assert list(one["value"]) == list(one["low"]) == list(one["high"]) == [0.1, 0.2]
    two = band(pd.DataFrame([[0.1, 0.3], [0.2, 0.2]]))
    assert list(two["value"]) == pytest.approx([0.2, 0.2])
    assert two["low"][0] == pytest.approx(0.1)
    assert list(two["high"]) == pytest.approx([0.3, 0.2])


def test_arms_can_be_told_apart_without_colour() -> None:
    looks = {(str(style(place)["linestyle"]), style(place)["marker"]) for place in range(10)}
    assert len(looks) == 10


def test_a_picture_is_a_png_and_its_numbers(tmp_path: Path) -> None:
    figure = Figure(figsize=(3, 2), dpi=DPI, layout="constrained")
    draw(figure.subplots(), pd.DataFrame(columns=["arm"]), ["8/0"], r"$\frac{ 鯖", "x")
    legend(figure, ["8/0", "$x"])
    picture = Picture("one", "", figure, pd.DataFrame([{"arm": "a", "x": 1 / 3}, {"arm": "b", "note": "c"}]))
    save(picture, tmp_path)
    data = (tmp_path / "one.png").read_bytes()
    assert struct.unpack(">II", data[16:24]) == (450, 300)
    assert (tmp_path / "one.csv").read_text() == "arm,x,note\na,0.333333,\nb,,c\n"
    save(picture, tmp_path)
    assert (tmp_path / "one.png").read_bytes() == data


def test_held_out_by_updates_and_flops(results: Results) -> None:
    runs = results.runs["generalists"]
    picture = figures.held_out_curves("generalists", runs, results.study)
    ends = picture.table.groupby(["along", "arm"])["x"].max()
    assert ends["updates", "8/0"] == 12
    assert ends["flops", "8/0"] > 1.5 * ends["flops", "2/6"]


def test_a_figure_draws_six_arms_those_of_contrasts_first_and_names_the_others(results: Results) -> None:
    one = results.runs["generalists"]["4/4"]
    runs = {f"arm {n}": one for n in range(10)}
    contrasts = {"last": ContrastSpec(treated="arm 9", control="arm 0")}
    study = results.study.model_copy(update={"arms": {arm: Arm() for arm in runs}, "contrasts": contrasts})
    picture = figures.held_out_curves("generalists", runs, study)
    assert "Not drawn, but in the table and the CSV: arm 5, arm 6, arm 7, arm 8." in picture.caption
    assert set(picture.table["arm"]) == set(runs)
