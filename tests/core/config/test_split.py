"""Training and held-out questions: apart by text, the same for everybody."""

from __future__ import annotations

import pytest

from shoal.config.tasks import EASY, TasksConfig, TaskSpec
from shoal.errors import UserError
from shoal.rollout import Message, Question, QuestionId
from shoal.tasks import SUITES, Tasks, create_task

FEWEST = {"pond": 12, "reef": 12, "tagged": 12}
"""Held-out questions that each of a suite's small tasks has more than."""


@pytest.mark.parametrize("name", SUITES)
def test_training_and_held_out_texts_are_apart(name: str) -> None:
    tasks = Tasks(TasksConfig(suite=name))
    training = {q.content for q in tasks.draw(4000, "node", 0)}
    groups = tasks.held_out(64, seed=0)
    assert list(groups) == [spec.name for spec in SUITES[name]]
    for label, questions in groups.items():
        contents = {q.content for q in questions}
        assert len(contents if questions[0].turns == 1 else {q.id for q in questions}) == len(questions), label
        assert len(questions) == 64 or (name in EASY and len(questions) > FEWEST[name]), label
        assert not contents & training, label
        assert {q.id.task for q in questions} == {label}


def test_held_out_is_a_function_of_the_seed() -> None:
    tasks, others = Tasks(TasksConfig()), Tasks(TasksConfig())
    assert tasks.held_out(8, 5) == others.held_out(8, 5)
    assert tasks.held_out(8, 5) != others.held_out(8, 6)
    longer = tasks.held_out(12, 5)
    assert all(longer[label][:8] == questions for label, questions in tasks.held_out(8, 5).items())
    assert all(questions == [] for questions in tasks.held_out(0, 5).values())


def test_the_side_depends_on_the_text_alone() -> None:
    tasks = Tasks(TasksConfig())
    question = tasks.draw(1, "k")[0]
    elsewhere = Question(
        create_task(TaskSpec(name="lcm")).question(1, 1).id, (Message("user", f"  {question.text}\n"),)
    )
    assert tasks.is_held_out(question) == tasks.is_held_out(elsewhere) is False


def test_a_fifth_is_held_out() -> None:
    tasks = Tasks(TasksConfig())
    task = create_task(TaskSpec(name="chain_sum"))
    held = sum(tasks.is_held_out(task.question(1, index)) for index in range(1001))
    assert abs(held / 1001 - 0.2) < 0.04


class Single:
    """A task that has one question."""

    name, version, config = "single", "1", ""

    def __init__(self, text: str) -> None:
        self.text = text

    def question(self, seed: int, index: int) -> Question:
        return Question(QuestionId("single", "1", "", seed, index), (Message("user", self.text),))

    def score(self, question: QuestionId, answers: list[str]) -> list[float]:
        return [0.0 for _ in answers]


def test_a_task_with_one_question_has_one_side_and_says_so() -> None:
    sides = set()
    for number in range(20):
        tasks = Tasks(TasksConfig(sources=[TaskSpec(name="test_split:Single", parameters={"text": str(number)})]))
        held_out = tasks.is_held_out(Single(str(number)).question(0, 0))
        sides.add(held_out)
        if held_out:
            with pytest.raises(UserError, match="has no training question"):
                tasks.draw(1, "k")
        else:
            assert [*tasks.held_out(4, 0).values()] == [[]]
    assert sides == {True, False}
