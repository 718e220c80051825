"""The pictures of a report."""

from __future__ import annotations

import struct
from pathlib import Path

import pandas as pd
import pytest

from shoal_lab.figures import draw_curves
from shoal_lab.results import Results, read_results
from shoal_lab.study import Arm, ContrastSpec
from studies import make_study


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("study")
    return read_results(make_study(folder, seeds=2, nodes=3, rounds=12, arms=["8/0", "6/2", "4/4", "2/6"]))


def test_held_out_by_updates_and_flops(results: Results, tmp_path: Path) -> None:
    runs = results.runs["generalists"]
    name, _ = draw_curves("generalists", runs, results.study, tmp_path)
    data = (tmp_path / f"{name}.png").read_bytes()
    assert struct.unpack(">II", data[16:24]) == (1440, 600)
    table = pd.read_csv(tmp_path / f"{name}.csv")
    assert list(table) == ["along", "arm", "x", "pass@1", "low", "high"]
    assert (table["low"] <= table["pass@1"]).all()
    assert (table["pass@1"] <= table["high"]).all()
    ends = table.groupby(["along", "arm"])["x"].max()
    assert ends["updates", "8/0"] == 12
    assert ends["flops", "8/0"] > 1.5 * ends["flops", "2/6"]
    draw_curves("generalists", runs, results.study, tmp_path)
    assert (tmp_path / f"{name}.png").read_bytes() == data


def test_one_seed_has_no_band(results: Results, tmp_path: Path) -> None:
    runs = {arm: dict(list(seeds.items())[:1]) for arm, seeds in results.runs["generalists"].items()}
    name, _ = draw_curves("generalists", runs, results.study, tmp_path)
    table = pd.read_csv(tmp_path / f"{name}.csv")
    assert list(table["low"]) == list(table["pass@1"]) == list(table["high"])


def test_a_figure_draws_six_arms_those_of_contrasts_first_and_names_the_others(
    results: Results, tmp_path: Path
) -> None:
    one = results.runs["generalists"]["4/4"]
    names = [*(f"arm {n}" for n in range(9)), r"$\frac{ 鯖"]
    runs = dict.fromkeys(names, one)
    contrasts = {"last": ContrastSpec(treated=names[9], control="arm 0")}
    study = results.study.model_copy(update={"arms": {arm: Arm() for arm in runs}, "contrasts": contrasts})
    name, caption = draw_curves("generalists", runs, study, tmp_path)
    assert "Not drawn, but in the table and the CSV: arm 5, arm 6, arm 7, arm 8." in caption
    assert set(pd.read_csv(tmp_path / f"{name}.csv")["arm"]) == set(runs)
