"""A published report, recomputed from its own figures."""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from shoal.errors import UserError
from shoal_lab import verify_scipy
from shoal_lab.published import MAX_FIGURES, read_report
from shoal_lab.report import write_report
from shoal_lab.statistics import iqm_interval
from shoal_lab.verify import check_tables, verify
from shoal_lab.verify_scipy import ends_agree, flip_p, iqm, p_agrees, resampled
from studies import make_study

pytest.importorskip("scipy")
STUDIES = Path(__file__).parents[3] / "docs" / "studies"
PAIR = {"treated": "4/4", "control": "8/0"}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report with every kind of contrast."""
    folder = make_study(
        tmp_path_factory.mktemp("verify") / "study", seeds=7, nodes=2, rounds=8, regimes=["r"], arms=["8/0", "4/4"],
        contrasts={
            "up": PAIR | {"expect": "above"},
            "wide": PAIR | {"expect": "equal", "margin": 1000},
            "same": PAIR | {"expect": "equal"},
            "none": PAIR | {"figure": "mean/peers/ess"},
        },
        unfinished=[("r", "4/4", 107)],
        changed=["The margin of `wide` was 0.1 before."],
    )  # fmt: skip
    return write_report(folder, Console(file=io.StringIO())).parent


def check(folder: Path) -> tuple[int, str]:
    said: list[str] = []
    return verify(folder, said.append), "\n".join(said)


def copied(published: Path, folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    data = json.loads((published / "report.json").read_text())
    change(data)
    (folder / "report.json").write_text(json.dumps(data))
    return folder


def test_a_report_agrees_with_its_own_figures(published: Path) -> None:
    code, said = check(published)
    assert code == 0, said
    assert "All that could be checked agrees." in said
    assert "not checked" not in said
    for kind in (
        "interquartile means",
        "ratios",
        "gains",
        "p of differences: 1 of 1",
        "p of equality: 6 of 6",
        "totals",
    ):
        assert kind in said
    assert check(published.parent) == (code, said)  # of the study's folder
    assert check(published / "report.json") == (code, said)
    assert (
        "## Changed after a first look\n\n- The margin of `wide` was 0.1 before."
        in (published / "report.md").read_text()
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["regimes"]["r"]["arms"]["4/4"]["held_out/final"]["seeds"].update({"101": 0.9}), "held_out/final"),
        (lambda d: d["regimes"]["r"]["arms"]["8/0"]["held_out/final"].update(low=0.0), "held_out/final, interval"),
        (lambda d: d["contrasts"][0].update(p=0.001), "p of differences"),
        (lambda d: d["contrasts"][0].update(adjusted_p=0.04), "p, adjusted by Holm"),
        (lambda d: d["contrasts"][0].update(outcome="not met"), "contrast up, r: not met is reported, met is found"),
        (lambda d: d["contrasts"][0].update(sentence="4/4 is better."), "its sentence"),
        (lambda d: d["contrasts"][1].update(margin=1.0), "margin"),
        (lambda d: d["contrasts"][2]["relative"].update(value=3.0), "differences in percent"),
        (lambda d: d["contrasts"][3].update(found="above"), "contrast none, r"),
        (lambda d: d["regimes"]["r"]["ratios"][0]["local"].update(value=9.0), "4/4, local"),
        (lambda d: d["gains"]["sharing"][0].update(value=9.0), "gains"),
        (lambda d: d["regimes"]["r"]["areas_end"].update(rounds=7), "where areas end"),
        (lambda d: d["regimes"]["r"]["spread"]["4/4"].update(followers=99), "followers: 99 is reported"),
        (lambda d: d.update(seconds=1.0), "seconds of all runs"),
    ],
)
def test_what_does_not_follow_is_named(
    published: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    code, words = check(copied(published, tmp_path, change))
    assert code == 1
    assert said in words
    assert "disagree" in words


def test_a_number_that_was_written_into_the_page_is_named(published: Path, tmp_path: Path) -> None:
    copied(published, tmp_path, lambda data: None)
    text = (published / "report.md").read_text()
    (tmp_path / "report.md").write_text(text + "\n| a | b |\n| --- | --- |\n| more | 0.777 [0.7, 0.8] |\n")
    code, words = check(tmp_path)
    assert code == 1
    assert "| more | 0.777 [0.7, 0.8] | in place of nothing" in words


def test_rows_that_were_exchanged_are_named(published: Path, tmp_path: Path) -> None:
    copied(published, tmp_path, lambda data: None)
    lines = (published / "report.md").read_text().splitlines()
    first, second = [number for number, line in enumerate(lines) if line.startswith("| ") and " | " in line][2:4]
    lines[first], lines[second] = lines[second], lines[first]
    (tmp_path / "report.md").write_text("\n".join(lines))
    code, words = check(tmp_path)
    assert code == 1
    assert "2 disagree" in words


@pytest.mark.parametrize("report", sorted(STUDIES.glob("*/report.json")), ids=lambda path: path.parent.name)
def test_the_tables_of_published_reports_are_those_of_their_figures(report: Path) -> None:
    assert check_tables(json.loads(read_report(report)), report.with_name("report.md").read_text())[1] == []


@pytest.mark.parametrize("part", ["source", "by_seed"])
def test_a_report_without_what_its_figures_follow_from_is_refused(published: Path, tmp_path: Path, part: str) -> None:
    def bare(data: dict[str, Any]) -> None:
        if part == "source":
            del data[part]
        for regime in data["regimes"].values():
            for spread in regime["spread"].values():
                spread.pop(part, None)

    with pytest.raises(UserError, match=f"{part}: Field required"):
        check(copied(published, tmp_path, bare))


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "{}", '{"finished": 1, "regimes": {"r": {"arms": {"a": {"f": {"value": NaN}}}}}}',
        '{"finished": 1, "regimes": {"r": {"arms": {"a": {"f": 1}}}}}', "[" * 100_000, '{"finished": 1e999}', "\xff\0",
        '{"finished": 1, "regimes": {"\\u001b[2J": {"arms": 3}}}', '{"finished": ' + "9" * 5000 + "}",
        json.dumps({"finished": 1, "regimes": {"r": {"arms": {"a": dict.fromkeys(map(str, range(MAX_FIGURES + 1)))}}}}),
        json.dumps({"finished": 1, "regimes": {"r": {"arms": {"a": {"f": {
            "value": 1, "low": 1, "high": 1, "missing": 0, "seeds": dict.fromkeys(map(str, range(300)), 1.0)}}}}}}),
    ],
)  # fmt: skip
def test_what_is_no_report_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text, encoding="latin-1")
    with pytest.raises(UserError) as refused:
        verify(tmp_path, lambda line: None)
    assert "\n" not in str(refused.value)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 800


def test_names_in_a_report_steer_no_terminal(published: Path, tmp_path: Path) -> None:
    def hostile(data: dict[str, Any]) -> None:
        data["regimes"]["r"]["arms"]["\x1b[2J[red]"] = {
            "f\n": {"value": 1, "low": 1, "high": 1, "missing": 0, "seeds": {}}
        }

    code, words = check(copied(published, tmp_path, hostile))
    assert code == 1
    assert "?[2J[red]" in words
    assert "\x1b" not in words


def test_no_report_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no report\.json"):
        verify(tmp_path, lambda line: None)


def test_the_recomputation_uses_scipy_and_numpy_alone() -> None:
    tree = ast.parse(Path(verify_scipy.__file__).read_text())
    named = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    named |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {str(name).split(".")[0] for name in named} <= {
        "__future__",
        "collections",
        "math",
        "numpy",
        "scipy",
        "typing",
    }


def test_intervals_agree_and_shifted_ones_do_not() -> None:
    for seed in range(20):
        values = np.random.default_rng(seed).normal(size=10)
        found, drawn = iqm_interval(values), resampled([values], iqm)
        assert ends_agree(found.low, found.high, drawn)
        width = found.high - found.low
        assert not ends_agree(found.low - 0.5 * width, found.high, drawn)
        assert not ends_agree(found.low, found.high - 0.5 * width, drawn)


def test_p_by_scipy() -> None:
    assert flip_p(np.array([1.0, 2.0, 3.0])) == 0.25
    assert flip_p(np.array([0.1, 0.2, 0.3]), "greater") == 0.125  # 0.1 + 0.2 is not 0.3, and a tie all the same
    assert flip_p(np.array([1.0])) == 1
    assert p_agrees(0.03, 0.031, 15)
    assert not p_agrees(0.03, 0.031, 10)
