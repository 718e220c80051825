"""The task `infer`: small functions by their tests, asked as problems of peers are."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.rollout import Completion, Rollout, Scored
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal_extras.programs import propose
from shoal_extras.programs.propose import calls, small_function
from shoal_extras.stages.stages import Stages

pytest.importorskip("pydantic_monty")
CONFIG = TasksConfig(sources=[TaskSpec(name="infer"), TaskSpec(name="propose")])


def test_right_answers_are_right_and_those_to_other_questions_are_not() -> None:
    tasks = Tasks(CONFIG)
    with Verifier(CONFIG) as verifier:
        for name in ("infer", "propose"):
            asked = [tasks.made(name, 1, index) for index in range(30)]
            answers = [tasks.answer(question.id) or "" for question in asked]
            pairs = zip(asked, zip(answers, answers[1:] + answers[:1], strict=True), strict=True)
            found = verifier.score([(question.id, texts) for question, texts in pairs])
            assert [right for right, _ in found] == [1.0] * 30
            assert sum(other for _, other in found) <= 1, "now and then two ask for the same function"
            assert len(set(answers)) > 25


def test_what_is_shown_is_not_enough() -> None:
    question = Tasks(CONFIG).made("infer", 1, 0)
    shown = (line.removeprefix("> assert f(") for line in question.text.splitlines()[1:3])
    known = ", ".join(test.replace(") ==", ":") for test in shown)
    lookup = f"def f(n):\n    return {{{known}}}[n]"
    with Verifier(CONFIG) as verifier:
        assert verifier.score([(question.id, [lookup])]) == [[0.0]]
        assert verifier.failures == {}, "it is a program, and wrong"


def test_it_is_asked_as_the_stage_solve_asks() -> None:
    tasks = Tasks(CONFIG)
    asked = tasks.draw(1, "reef", 2, weights=[0.0, 1.0])[0]
    problem = tasks.answer(asked.id) or ""
    rollout = Rollout(asked.id, asked.hash, (Completion.of(problem),), "ada", 1)
    stages = Stages(["solve"], "bob")
    stages.remember(rollout, Scored(rollout, asked, (1.0,)))
    solve = stages.draw(1, ("reef", "bob", 2))
    infer = tasks.made("infer", 1, 0)
    assert solve is not None
    assert [solve.text.splitlines()[line] for line in (0, 3, 4)] == [
        infer.text.splitlines()[line] for line in (0, 3, 4)
    ]
    assert solve.text.splitlines()[1:3] == [f"> {test}" for test in propose.tests_of(problem)[:2]]
    assert propose.own_program(problem) not in solve.text


@settings(max_examples=50)
@given(st.integers(0, 2**62), st.integers(0, 9999), st.integers(2, 6))
def test_no_two_tests_of_a_small_function_want_the_same(seed: int, first: int, count: int) -> None:
    random = Random(seed)
    small = small_function(random)
    numbers = calls(random, first, count)
    assert numbers[0] == first
    assert len({repr(small.function(n)) for n in numbers}) == count
