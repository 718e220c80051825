"""Drawing questions and making them again."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import UserError
from shoal.rollout import QuestionId
from shoal.tasks import SUITES, Tasks, UnknownQuestion, slot_seed

CONFIGS = {name: TasksConfig(suite=name) for name in SUITES}
TASKS = {name: Tasks(config) for name, config in CONFIGS.items()}

keys = st.lists(st.text(max_size=8) | st.integers(0, 2**40), max_size=3).map(tuple)


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(name=st.sampled_from(sorted(SUITES)), key=keys, n=st.integers(0, 12))
def test_a_draw_is_a_function_of_its_key(name: str, key: tuple[str | int, ...], n: int) -> None:
    fresh = Tasks(CONFIGS[name])
    questions = fresh.draw(n, *key)
    assert questions == TASKS[name].draw(n, *key)
    assert questions == TASKS[name].draw(n + 3, *key)[:n]
    for slot, question in enumerate(questions):
        assert question == Tasks(CONFIGS[name]).question(question.id)
        assert question.id.seed == slot_seed(key, slot, question.id.task)
        assert 0 <= question.id.index <= 1000
        assert 0 <= question.id.seed < 2**63


def test_draws_of_other_keys_differ() -> None:
    seeds = {q.id.seed for node in "abc" for round in range(50) for q in TASKS["pond"].draw(4, node, round)}
    assert len(seeds) == 3 * 50 * 4


def test_weights() -> None:
    specs = [TaskSpec(name="gcd", weight=3), TaskSpec(name="lcm", weight=1)]
    counts = Counter(q.id.task for q in Tasks(TasksConfig(sources=specs)).draw(2000, "k"))
    assert 0.7 < counts["gcd"] / 2000 < 0.8


def test_two_parameter_sets_of_one_task() -> None:
    specs = [TaskSpec(name="gcd"), TaskSpec(name="gcd", parameters={"max_value": 9}), TaskSpec(name="lcm")]
    tasks = Tasks(TasksConfig(sources=specs))
    assert list(tasks.held_out(3, 0)) == ["gcd#1", "gcd#2", "lcm"]
    with pytest.raises(UserError, match="listed twice"):
        Tasks(TasksConfig(sources=[TaskSpec(name="gcd"), TaskSpec(name="gcd", parameters={"min_value": 1})]))


@pytest.mark.parametrize(
    "change",
    [
        {"task": "spiral_matrix"},
        {"version": "0.1.24+1"},
        {"config": "0" * 32},
        {"index": 1001},
        {"index": -1},
        {"seed": 2**63},
        {"seed": -1},
    ],
)
def test_questions_of_others_are_unknown(change: dict[str, str | int]) -> None:
    identity: QuestionId = TASKS["pond"].draw(1, "k")[0].id
    with pytest.raises(UnknownQuestion):
        TASKS["pond"].question(msgspec.structs.replace(identity, **change))


def test_the_same_questions_by_a_config_that_was_sent() -> None:
    config = TasksConfig.model_validate_json(CONFIGS["paper"].model_dump_json())
    assert Tasks(config).draw(20, "k") == TASKS["paper"].draw(20, "k")


def test_tasks_are_drawn_as_ever() -> None:
    """The digits of earlier versions."""
    sources = [{"name": "gcd"}, {"name": "lcm", "weight": 2.5}]
    plain = Tasks(TasksConfig.model_validate({"sources": sources}))
    assert [(question.id.task, question.id.seed) for question in plain.draw(3, "node key", 17)] == [
        ("lcm", 3249798387174443540),
        ("lcm", 981696875503943175),
        ("gcd", 6730728790513188417),
    ]
