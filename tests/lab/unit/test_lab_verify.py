"""A published report, recomputed from its own figures."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from shoal.errors import UserError
from shoal_lab.report import write_report
from shoal_lab.verify import MAX_FIGURES, verify
from studies import make_study

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
    assert "13 runs, " in said
    assert "tables of report.md" in said
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
        (
            lambda d: d["regimes"]["r"]["arms"]["8/0"]["held_out/final"].update(low=0.0),
            "low: 0 is reported",
        ),
        (lambda d: d["contrasts"][0].update(p=0.001), "contrasts 1, p: 0.001 is reported"),
        (lambda d: d["contrasts"][0].update(adjusted_p=0.04), "contrasts 1, adjusted_p"),
        (
            lambda d: d["contrasts"][0].update(outcome="not met"),
            "not met is reported, met is found",
        ),
        (lambda d: d["contrasts"][0].update(sentence="4/4 is better."), "contrasts 1, sentence"),
        (lambda d: d["contrasts"][1].update(margin=1.0), "contrasts 2, margin"),
        (lambda d: d["contrasts"][2]["relative"].update(value=3.0), "contrasts 3, relative, value"),
        (lambda d: d["contrasts"][3].update(found="above"), "contrasts 4, found"),
        (lambda d: d["regimes"]["r"]["ratios"][0]["local"].update(value=9.0), "ratios 1, local, value"),
        (lambda d: d["regimes"]["r"]["areas_end"].update(rounds=7), "areas_end, rounds"),
        (lambda d: d["regimes"]["r"]["spread"]["4/4"].update(followers=99), "followers: 99 is reported"),
        (lambda d: d.update(seconds=1.0), "seconds: 1 is reported"),
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


@pytest.mark.slow
@pytest.mark.parametrize("report", sorted(STUDIES.glob("*/report.json")), ids=lambda path: path.parent.name)
def test_published_reports_follow_from_their_figures(report: Path) -> None:
    code, said = check(report)
    assert code == 0, said
    assert "not checked" not in said


def test_a_report_without_what_its_figures_follow_from_is_refused(published: Path, tmp_path: Path) -> None:
    def bare(data: dict[str, Any]) -> None:
        for regime in data["regimes"].values():
            for spread in regime["spread"].values():
                spread.pop("by_seed", None)

    with pytest.raises(UserError, match="by_seed: Field required"):
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
