"""The report of a study that never ran."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from shoal.errors import UserError
from shoal_lab.config import make_lab_config
from shoal_lab.contrasts import MET, NOT_MET, OPEN, UNASKED, verdicts
from shoal_lab.report import write_report
from shoal_lab.report_text import markdown, number
from shoal_lab.results import counted_nodes, cuts, read_results, scores
from shoal_lab.study import Study
from studies import make_study

FEWER = ("8/0", "4/4", "2/6")
TWO = {"sharing": {"treated": "4/4", "control": "8/0"}, "too much": {"treated": "2/6", "control": "4/4"}}
SHARING = {"sharing": {"treated": "4/4", "control": "8/0", "expect": "above"}}


def report(folder: Path) -> tuple[str, dict[str, Any]]:
    path = write_report(folder, Console(file=io.StringIO()))
    assert path == folder / "report" / "report.md"
    return path.read_text(), json.loads(path.with_name("report.json").read_text())


@pytest.mark.slow
def test_the_whole_report(tmp_path: Path) -> None:
    left = ("specialists", "4/4", 102)
    folder = make_study(tmp_path, seeds=2, nodes=3, rounds=12, arms=FEWER, contrasts=TWO, unfinished=[left])
    text, data = report(folder)
    assert data["finished"] == 11
    assert data["unfinished"] == ["specialists · 4/4 · seed 102"]
    assert "specialists · 4/4 · seed 102" in text
    assert data["seconds"] == 11 * 61.5
    assert f"shoal lab run {folder / 'study.toml'}" in text
    assert len(data["contrasts"]) == 4
    assert all(each["found"] == OPEN for each in data["contrasts"])  # two seeds can show nothing
    assert "Nothing may be concluded" in text
    assert "1. 4/4 learns faster than 8/0." in text
    assert "*diagnostic*" in text
    assert "| 4/4 |" in text
    assert "1.95×" in text
    names = {each["name"] for each in data["figures"]}
    assert names == {"held_out_generalists", "held_out_specialists"}
    assert {path.stem for path in (folder / "report").glob("*.png")} == names
    assert {path.stem for path in (folder / "report").glob("*.csv")} == names
    assert all(f"({name}.png)" in text for name in names)
    regime = data["regimes"]["generalists"]
    assert "Rounds differ" not in text
    longer = regime | {"rounds": regime["rounds"] | {"8/0": 9}}
    assert "Rounds differ (8/0: 9, " in markdown(data | {"regimes": {"r": longer}})
    arm = regime["arms"]["4/4"]
    assert arm["held_out/final"]["seeds"].keys() == {"101", "102"}
    assert arm["per_node/tokens/generated"]["value"] < 12 * 4 * 8 * 12


@pytest.mark.slow
def test_one_seed_no_contrasts_and_missing_figures(tmp_path: Path) -> None:
    folder = make_study(
        tmp_path, seeds=1, nodes=2, rounds=8, regimes=[], arms=["8/0", "4/4"], contrasts={}, expect=[],
        without=["flops/generate", "peers/ess", "gradient/peers", "reward/trained_on"],
    )  # fmt: skip
    text, data = report(folder)
    assert "No contrast was named" in text
    assert "One seed" in text
    assert "[" not in next(line for line in text.splitlines() if line.startswith("| held-out pass@1 at the end"))
    assert data["regimes"]["main"]["arms"]["4/4"]["held_out/area_per_flop"] is None
    assert "mean along FLOPs |" not in text
    assert [each["name"] for each in data["figures"]] == ["held_out_main"]

    (folder / "report" / "fig1_gone.png").write_bytes(b"")
    again, _ = report(folder)
    assert again == text
    assert not (folder / "report" / "fig1_gone.png").exists()


@pytest.mark.parametrize("without", [["eval/pass@1"], ["reward/local"], ["rollouts/wanted", "learner/steps"]])
def test_metrics_that_say_less(tmp_path: Path, without: list[str]) -> None:
    folder = make_study(
        tmp_path, seeds=1, nodes=2, rounds=4, regimes=["r"], arms=["8/0", "4/4"], contrasts=SHARING, without=without
    )
    _, data = report(folder)
    assert data["contrasts"][0]["outcome"] == OPEN


def test_arms_of_which_nothing_is_finished(tmp_path: Path) -> None:
    left = [("r", "4/4", 101), ("r", "4/4", 102)]
    folder = make_study(
        tmp_path, seeds=2, nodes=2, rounds=4, regimes=["r"], arms=["8/0", "4/4"], contrasts=SHARING, unfinished=left
    )
    text, data = report(folder)
    assert "No run of 4/4 is finished." in text
    assert data["contrasts"][0]["outcome"] == OPEN


def test_folders_without_anything_to_report(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not the folder of a study"):
        report(tmp_path)
    left = [("r", "8/0", 101)]
    folder = make_study(
        tmp_path / "a", seeds=1, nodes=1, rounds=2, regimes=["r"], arms=["8/0"], contrasts={}, unfinished=left
    )
    with pytest.raises(UserError, match="no run is finished"):
        report(folder)


def test_expectations_met_or_not(tmp_path: Path) -> None:
    pair = {"treated": "4/4", "control": "8/0"}
    contrasts = {
        "up": pair | {"expect": "above"},
        "down": pair | {"expect": "below"},
        "open": pair,
        "same": pair | {"expect": "equal", "margin": 0.05},
        "wide": pair | {"expect": "equal", "margin": 1000},
        "compute": pair | {"figure": "held_out/area_per_flop", "expect": "above"},
        "none": pair | {"figure": "mean/peers/ess"},
        "itself": {"treated": "8/0", "control": "8/0", "expect": "equal"},
    }  # fmt: skip
    folder = make_study(tmp_path, seeds=10, nodes=2, rounds=20, regimes=["r"], arms=["8/0", "4/4"], contrasts=contrasts)
    results = read_results(folder)
    study = results.study
    found = {verdict.name: verdict for verdict in verdicts(study.plan(), results.figures)}
    outcomes = {name: verdict.outcome for name, verdict in found.items()}
    assert outcomes == {
        "up": MET, "down": NOT_MET, "open": UNASKED, "same": NOT_MET, "wide": MET, "compute": MET, "none": UNASKED,
        "itself": MET,
    }  # fmt: skip
    assert found["open"].found == "above"
    assert "may be said to be equal within ±23" in found["wide"].sentence
    assert "may be said to be above that of 8/0 by more than" in found["same"].sentence
    assert "was not measured in 8/0" in found["none"].sentence
    assert found["up"].contrast is not None
    assert found["up"].contrast.contrasts == 4  # not those of equality, nor the one that was not measured
    assert found["up"].sentence.startswith("up, r: 4/4 less 8/0")
    assert found["up"].relative is not None
    assert found["up"].relative.low > 0


def test_areas_end_where_the_least_run_does(tmp_path: Path) -> None:
    folder = make_study(tmp_path, seeds=1, nodes=2, rounds=20, regimes=["r"], arms=["8/0", "2/6"], contrasts={})
    runs = read_results(folder).runs["r"]
    rounds, compute = cuts(runs)
    assert rounds == 20
    assert (rounds, compute) == cuts({"2/6": runs["2/6"]})
    assert compute > 0
    assert scores(runs)["held_out/area_per_flop"]["8/0", 101] > 0
    assert cuts({}) == pytest.approx((math.nan, math.nan), nan_ok=True)


@pytest.mark.parametrize(
    ("settings", "counted"),
    [
        ({}, 4),
        ({"experiment": {"frozen": 1}}, 3),
        ({"experiment": {"frozen": 4}}, 4),
        ({"experiment": {"adversaries": 2}}, 2),
        ({"experiment": {"adversaries": 1, "frozen": 4}}, 3),
        ({"experiment": {"frozen": 2}, "learner": {"learning_rate": 0.0}}, 4),
    ],
)
def test_nodes_that_count(settings: dict[str, Any], counted: int) -> None:
    config = make_lab_config({"round": {"nodes": 4}} | settings, "test").resolved()
    assert counted_nodes(config) == [f"node-{place}" for place in range(1, counted + 1)]


def test_numbers_as_words() -> None:
    assert [number(value) for value in (-2e-18, 0.12345, 12.345, 70393.4, -0.5, 4314505216.0)] == [
        "0",
        "0.123",
        "12.3",
        "70393",
        "-0.5",
        "4.31e+09",
    ]


def test_tables_and_contrasts_end_at_one_place(tmp_path: Path) -> None:
    arms = ["8/0", "4/4", "2/6"]
    folder = make_study(tmp_path, seeds=2, nodes=2, rounds=20, regimes=["r"], arms=arms, contrasts=SHARING)
    results = read_results(folder)
    assert cuts(results.runs["r"])[1] < cuts({arm: results.runs["r"][arm] for arm in ("8/0", "4/4")})[1]
    flops = {"flops": SHARING["sharing"] | {"figure": "held_out/area_per_flop"}}
    study = results.study.model_copy(update={"contrasts": Study.model_validate(
        results.study.model_dump() | {"contrasts": flops}).contrasts})  # fmt: skip
    [verdict] = verdicts(study.plan(), results.figures)
    table = results.figures["r"]["held_out/area_per_flop"]
    assert verdict.contrast is not None
    assert verdict.contrast.mean_difference == pytest.approx(table["4/4"].mean() - table["8/0"].mean())


def test_versions_are_told_where_they_differ(tmp_path: Path) -> None:
    folder = make_study(tmp_path, seeds=2, nodes=1, rounds=4, regimes=["r"], arms=["8/0"], contrasts={})
    paths = sorted(folder.glob("runs/*/*/*/done.json"))
    for path, version in zip(paths, ("0.2.0+aaaa", "0.2.0+bbbb"), strict=True):
        path.write_text(json.dumps({"seconds": 1.0, "versions": {"shoal": version}}))
    assert "Versions of the runs: shoal 0.2.0+aaaa and 0.2.0+bbbb." in report(folder)[0]
