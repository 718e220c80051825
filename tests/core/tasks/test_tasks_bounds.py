"""Answers that would hold their scorer up are known before it reads them; right answers never are."""

from __future__ import annotations

import pytest

from shoal.config.tasks import TaskSpec
from shoal.tasks import create_task
from shoal.tasks.reasoning import is_too_much

SLOW = [
    ("rush_hour", "A+999999999999999999"),
    ("rush_hour", "A+99 A-99 " * 50),
    ("rush_hour", "A+" + "9" * 4000),
    ("rubiks_cube", "U999999999"),
    ("rubiks_cube", "U\u0669\u0669\u0669\u0669\u0669"),  # digits, to `int` as to regular expressions
    ("rubiks_cube", "U R " * 600),
    ("coin_flip", "1e999999999"),
    ("coin_flip", "1E-9,999,999"),
    ("propositional_logic", "∧".join("abcdefghijklmnopqrst")),
    ("propositional_logic", "¬" * 4000 + "P"),
    ("propositional_logic", "(P∧" * 500 + "P" + ")" * 500),
]


@pytest.mark.parametrize(("name", "answer"), SLOW)
def test_an_answer_that_would_take_too_long(name: str, answer: str) -> None:
    task = create_task(TaskSpec(name=name))
    entry = task.entry(3, 0)
    assert is_too_much(name, answer, entry)
    assert task.score(task.question(3, 0).id, [answer]) == [0.0]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("rush_hour", {}),
        ("rubiks_cube", {}),
        ("rubiks_cube", {"min_scramble_steps": 40, "max_scramble_steps": 40}),
        ("coin_flip", {}),
        ("coin_flip", {"min_trials": 12, "max_trials": 16}),
        ("propositional_logic", {}),
        ("propositional_logic", {"min_vars": 8, "max_vars": 8, "min_complexity": 5, "max_complexity": 5}),
    ],
)
def test_right_answers_are_read(name: str, parameters: dict[str, int]) -> None:
    task = create_task(TaskSpec(name=name, parameters=parameters))
    for index in range(20):
        entry = task.entry(3, index)
        metadata = entry["metadata"]
        answers = [entry["answer"], metadata.get("example_answer"), metadata.get("example_correct_answer")]
        answers += metadata.get("premises", [])
        assert not any(is_too_much(name, answer, entry) for answer in answers if answer)
