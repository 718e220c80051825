"""`shoal validate`: right answers must be right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from data_files import SUMS, write

from shoal.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_a_data_set_whose_answers_are_right(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path / "sums.jsonl", SUMS)
    assert main(["validate", "--data", str(path), "--questions", "100", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["sums"]
    assert (found["questions"], found["gold"], found["wrong"]) == (found["answered"], 1.0, [])
    assert found["constant"] == pytest.approx(0.1, abs=0.03), "10 of 100 sums are 9"
    assert found["constant_answer"] == "9"
    assert 0 < found["others"] < 0.2


def test_answers_that_are_not_right_are_shown_and_the_exit_code_says_so(tmp_path: Path, capsys: Capture) -> None:
    rows = [*SUMS[:20], {"prompt": "What is it?", "answer": "nobody knows"}]
    path = write(tmp_path / "sums.jsonl", rows)
    assert main(["validate", "--data", f"{path},score=number"]) == 1
    out = capsys.readouterr().out
    assert "20 of 21" in out
    assert "the right answer 'nobody knows' gets 0: What is it?" in out


def test_any_task_and_suite(capsys: Capture) -> None:
    assert main(["validate", "--suite", "tagged", "--only", "chain_sum", "--questions", "20"]) == 0
    assert "20 of 20" in capsys.readouterr().out
    assert main(["validate", "--task", "larger", "--questions", "20", "--answer", "boxed"]) == 0


def test_prompts_without_answers(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path / "p.jsonl", [{"prompt": f"Say {n}"} for n in range(9)])
    assert main(["validate", "--data", str(path)]) == 0
    assert "no right answers are known of: p" in capsys.readouterr().out


def test_mistakes(capsys: Capture) -> None:
    assert main(["validate", "--data", "gone.jsonl"]) == 2
    assert "there is no file gone.jsonl" in capsys.readouterr().err
    assert main(["validate", "--questions", "0"]) == 2
