"""What is wrong with a run: in its outcome, in its folder, and where nothing can be scored, an error."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.runs.diagnosis import ENOUGH
from shoal.runs.folder import WARNINGS, read_metrics, read_warnings, write_warnings
from shoal.runs.session import execute

SETTINGS: dict[str, Any] = {
    "rounds": 3,
    "threads": 1,
    "policy": {"device": "cpu", "num_generations": 2, "max_completion_length": 4},
    "round": {"nodes": 1, "local": 2, "peers": 0, "workers": 0},
    "evaluation": {"questions": 1, "samples": 1},
}
BROKEN = """
from letters import Letters

class Raises(Letters):
    name = "raises"
    def score(self, question, answers):
        raise ZeroDivisionError("never")

class Never(Letters):
    name = "never"
    def score(self, question, answers):
        return [0.0 for _ in answers]

class Some(Never):
    name = "some"
    def question(self, seed, index):
        if seed % 3 == 0:
            raise ValueError("no picture\\nof this one")
        return super().question(seed, index)

class Mute:
    name, version, max_turns = "mute", "1", 2
    def begin(self, seed):
        raise KeyError("word list")
    def answer(self, turn):
        return "", True
    def score(self):
        return 0.0
"""


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def config(task: str) -> Config:
    return Config.model_validate(SETTINGS | {"tasks": {"sources": [{"name": f"broken:{task}"}]}})


def test_a_run_stops_where_no_answer_can_be_scored(broken: Path) -> None:
    with pytest.raises(UserError, match="no answer could be scored: task 'raises': ZeroDivisionError: never") as caught:
        execute(config("Raises"), broken / "run")
    assert "\n" not in str(caught.value)
    assert not (broken / "run").exists()


def test_a_run_that_learns_nothing_says_so_and_keeps_it(broken: Path) -> None:
    outcome = execute(config("Never"), broken / "run")
    [warning] = outcome.warnings
    assert warning.startswith("nothing to learn: ")
    assert read_warnings(broken / "run") == [warning]


def test_a_run_ends_early_where_it_may_and_nothing_can_be_learned(broken: Path) -> None:
    settings = config("Never").model_copy(update={"rounds": 20})
    outcome = execute(settings, broken / "run", ends=True)
    assert (outcome.round, outcome.finished, outcome.hopeless) == (ENOUGH, False, True)
    outcome = execute(settings, resume=broken / "run")
    assert (outcome.round, outcome.finished, outcome.hopeless) == (20, True, False)


def test_a_question_that_cannot_be_made_costs_its_rollout_alone(broken: Path) -> None:
    outcome = execute(config("Some"), broken / "run")
    assert outcome.finished
    [said] = [one for one in outcome.warnings if "could not be made" in one]
    assert said.startswith("task 'some': ValueError: no picture (")
    [lost] = [int(word) for word in said.replace("(", "").split() if word.isdigit()][:1]
    rounds = read_metrics(broken / "run")
    assert 0 < lost < 6
    assert sum(row.get("completions/missing", 0) for row in rounds) == 2 * lost


def test_a_task_that_makes_no_question_ends_a_run_in_one_line(broken: Path) -> None:
    with pytest.raises(UserError, match="task 'mute': KeyError: 'word list'") as caught:
        execute(config("Mute"), broken / "run")
    assert "\n" not in str(caught.value)


def test_warnings_come_and_go(tmp_path: Path) -> None:
    assert read_warnings(tmp_path) == []
    write_warnings(tmp_path, ["one", "two\n  lines"])
    assert read_warnings(tmp_path) == ["one", "two\n  lines"]
    write_warnings(tmp_path, [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"[" * 10**5, b'["' + b"x" * 2**20 + b'"]'])
def test_a_strangers_file_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / WARNINGS).write_bytes(content)
    with pytest.raises(UserError, match="warnings"):
        read_warnings(tmp_path)
    (tmp_path / WARNINGS).unlink()
    os.mkfifo(tmp_path / WARNINGS)
    with pytest.raises(UserError, match="warnings"):
        read_warnings(tmp_path)
