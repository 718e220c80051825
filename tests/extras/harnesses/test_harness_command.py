"""`shoal eval --harness`: what is refused, and the table."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from shoal.cli.main import main
from shoal.protocols import Policy
from shoal_extras.harnesses.command import Asked, Figure, harness_table


@pytest.fixture(autouse=True)
def _not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal_extras.harnesses.command.find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--harness lm-eval --task arc_easy", "lm-eval is not installed: `pip install 'shoal[lm-eval]'`"),
        ("--harness lm-eval", "--harness needs at least one --task, such as --task arc_easy"),
        (
            "--harness lm-eval --task a --suite reef",
            "--harness has tasks of its own, which say how answers are decoded: leave out --suite",
        ),
        ("--harness lm-eval --task a --k 2", "leave out --k"),
        ("--harness lm-eval --task a --data gsm8k", "leave out --data"),
        ("--harness lm-eval --task a --temperature 0.5", "leave out --temperature"),
        ("--harness lm-eval --task a --max-completion-length 9", "leave out --max-completion-length"),
        ("--harness lm-eval --task a --include-path nowhere", "there is no such folder"),
        ("--harness lm-eval --task a --include-path .", "add --allow-code if you trust it"),
        ("--harness helm --task a", "there is no harness 'helm'; choose from lm-eval"),
        ("guppy", "one model at a time: several are for --harness"),
        ("--include-path .", "--include-path is for --harness lm-eval"),
    ],
)
def test_what_does_not_fit_is_one_line(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "guppy", *arguments.split()]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert said in line


def test_the_table_has_a_column_for_each_model() -> None:
    found = {
        "guppy": [Figure("sums", "exact_match", 8, 0.25, 0.1637), Figure("sums", "f1", 8, 0.5, None)],
        "runs/one/checkpoints/round-000060/node-1": [Figure("sums", "exact_match", 8, 0.5, 0.1890)],
        "http://host/v1": [Figure("[bold]x\x1b[2J", "acc", None, 1.0, 0.0)],
    }
    console = Console(width=150)
    with console.capture() as capture:
        console.print(harness_table("lm-eval", found))
    lines = [line.split() for line in capture.get().splitlines()]
    assert lines[1] == [
        "task",
        "metric",
        "questions",
        "guppy",
        "runs/one/checkpoints/round-000060/node-1",
        "http://host/v1",
    ]
    assert lines[2] == ["sums", "exact_match", "8", "0.250", "±", "0.164", "0.500", "±", "0.189", "-"]
    assert lines[3] == ["sums", "f1", "8", "0.500", "-", "-"]
    assert lines[4] == ["[bold]x?[2J", "acc", "-", "-", "1.000", "±", "0.000"]


def test_what_is_known_is_shown_when_a_later_model_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(policy: Policy, asked: Asked) -> list[Figure]:
        assert asked.seed is None, "the harness's own, unless the user says one"
        return [Figure("sums", "acc", 8, 0.5, None)]

    harness = ModuleType("shoal_extras.harnesses.lm_eval")
    harness.measure = measure  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, harness.__name__, harness)
    monkeypatch.setattr("shoal_extras.harnesses.command.find_spec", lambda name: True)
    assert main(["eval", "guppy", "http://127.0.0.1:9/v1", "--harness", "lm-eval", "--task", "a"]) == 2
    said = capsys.readouterr()
    assert "0.500" in said.out
    assert said.err.startswith("shoal: the endpoint http://127.0.0.1:9/v1 does not answer")
