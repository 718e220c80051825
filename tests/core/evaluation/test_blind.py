"""The blind baseline: what answers that ignore the question get."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest
from data_files import write

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.evaluation.blind import constants, over_all
from shoal.tasks import Tasks


def baseline(config: TasksConfig, per_task: int = 16) -> float | None:
    tasks = Tasks(config)
    held_out = tasks.held_out(per_task, 0)
    return over_all(constants(tasks, held_out), {task: len(group) for task, group in held_out.items()})


def test_it_is_what_saying_the_commonest_answer_gets() -> None:
    """Most years are no leap years; the larger of two numbers is seldom the same."""
    leap = TaskSpec(name="calendar_arithmetic", parameters={"tasks": ["is_leap_year"]})
    years = baseline(TasksConfig(sources=[leap]), per_task=100)
    assert years == pytest.approx(0.76, abs=0.08)
    larger = baseline(TasksConfig(sources=[TaskSpec(name="larger")]), per_task=100)
    assert larger is not None
    assert larger <= 0.06


def test_answers_of_pond_are_hard_to_guess() -> None:
    tasks = Tasks(TasksConfig())
    shares = constants(tasks, tasks.held_out(200, 0))
    assert max(share or 0 for share in shares.values()) <= 0.07  # 0.05 of all questions, and the luck of 200
    assert fmean(share or 0 for share in shares.values()) <= 0.03


def test_it_is_unknown_where_a_task_names_no_right_answer() -> None:
    assert baseline(TasksConfig(suite="paper", only=["propositional_logic"])) is None
    assert baseline(TasksConfig(sources=[TaskSpec(name="letters:Letters"), TaskSpec(name="gcd")])) is None


def test_without_a_training_side_it_is_the_answer_that_leads_among_held_out_questions(tmp_path: Path) -> None:
    for answers, expected in (("BBBBACDB", 5 / 8), ("ABCDEFGH", 0.0), ("AABBCCDD", 0.0)):
        rows = [{"prompt": f"Which of four, in case {n} of {answers}?", "answer": a} for n, a in enumerate(answers)]
        path = str(write(tmp_path / "held.jsonl", rows))
        spec = TaskSpec(name="data", parameters={"path": path, "split": "none", "held_out": path})
        assert baseline(TasksConfig(sources=[spec]), per_task=8) == expected


def test_conversations_that_do_not_listen() -> None:
    """A quarter of the numbers of `guess`; and nobody knows how to be blind in the other."""
    tasks = Tasks(TasksConfig(sources=[TaskSpec(name="guess")]))
    found = constants(tasks, tasks.held_out(200, 0))["guess"]
    assert found == pytest.approx(0.25, abs=0.1)
    tasks = Tasks(TasksConfig(sources=[TaskSpec(name="talking:Echo")]))
    assert constants(tasks, tasks.held_out(5, 0)) == {"echo": None}
