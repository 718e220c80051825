"""The blind baseline: what answers that ignore the question get."""

from __future__ import annotations

import pytest

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.evaluation.blind import blind_baseline
from shoal.tasks import Tasks


def baseline(config: TasksConfig, per_task: int = 16) -> float | None:
    tasks = Tasks(config)
    return blind_baseline(tasks, tasks.held_out(per_task, 0))


def test_it_is_what_saying_the_commonest_answer_gets() -> None:
    """Most years are no leap years; the larger of two numbers is seldom the same."""
    years = baseline(TasksConfig(only=["calendar_arithmetic"]), per_task=100)
    assert years == pytest.approx(0.76, abs=0.08)
    larger = baseline(TasksConfig(tasks=[TaskSpec(name="larger")]), per_task=100)
    assert larger is not None
    assert larger <= 0.06
    assert baseline(TasksConfig(tasks=[TaskSpec(name="larger", parameters={"greatest": 11})])) in (1.0, None)


def test_the_documented_figure_of_pond() -> None:
    assert baseline(TasksConfig()) == pytest.approx(0.1875)


def test_it_is_unknown_where_a_task_names_no_right_answer() -> None:
    assert baseline(TasksConfig(suite="paper", only=["propositional_logic"])) is None
    assert baseline(TasksConfig(tasks=[TaskSpec(name="letters:Letters"), TaskSpec(name="gcd")])) is None
