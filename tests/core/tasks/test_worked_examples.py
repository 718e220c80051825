"""Worked examples: the same on all nodes, right, in form, and never held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import UserError
from shoal.rollout import Message, Question, QuestionId, canonical
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal.tasks.draw import InvalidRollout, validate


def config(**settings: Any) -> TasksConfig:
    spec = {"name": "chain_sum", "parameters": {"max_terms": 3}, **settings}
    return TasksConfig.model_validate({"sources": [spec]})


def test_examples_come_before_the_question_and_after_the_system_prompt() -> None:
    [question] = Tasks(config(examples=2, answer="tag", system_prompt="Be brief.")).draw(1, "k")
    assert [message.role for message in question.chat] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert question.chat[0].content == "Be brief."
    assert question.chat[-1].content == question.text
    assert all(m.content.startswith("<answer>") for m in question.chat if m.role == "assistant")


def test_examples_are_right_and_none_is_held_out() -> None:
    settings = config(examples=8, answer="boxed")
    tasks, again = Tasks(settings), Tasks(settings)
    [question] = tasks.draw(1, "a")
    assert again.draw(1, "b")[0].examples == question.examples
    shown = [m.content for m in question.examples if m.role == "user"]
    assert len(set(map(canonical, shown))) == 8
    for text in shown:
        assert not tasks.is_held_out(Question(question.id, (Message("user", text),)))
    answers = [m.content for m in question.examples if m.role == "assistant"]
    plain = Tasks(config())
    made = [plain.question(QuestionId(*parts, seed, index)) for *parts, seed, index in _ids(plain, shown)]
    with Verifier(config(answer="boxed")) as verifier:
        boxed = Tasks(config(answer="boxed"))
        same = [boxed.made("chain_sum", q.id.seed, q.id.index) for q in made]
        assert verifier.score([(q.id, [a]) for q, a in zip(same, answers, strict=True)]) == [[1.0]] * 8


def _ids(tasks: Tasks, texts: Sequence[str]) -> list[tuple[str, str, str, int, int]]:
    """The ids of questions with these texts, among the first that examples are taken from."""
    from shoal.rollout import seed_of

    [task] = tasks.tasks
    seed = seed_of("examples", task.name, task.config)
    by_text = {task.question(seed, index).text: index for index in range(100)}
    return [(task.name, task.version, task.config, seed, by_text[text]) for text in texts]


def test_another_way_of_asking_is_another_question() -> None:
    """A rollout about a question with examples is not taken for one about the question alone."""
    plain, shown, other = Tasks(config()), Tasks(config(examples=1)), Tasks(config(answer="last_number"))
    [question] = shown.draw(1, "k")
    assert {plain.draw(1, "k")[0].id.config, question.id.config, other.draw(1, "k")[0].id.config} == {
        plain.tasks[0].config,
        question.id.config,
        other.draw(1, "k")[0].id.config,
    }
    assert len({t.draw(1, "k")[0].id.config for t in (plain, shown, other)}) == 3
    assert question.text == plain.draw(1, "k")[0].text
    assert validate(shown, question.id, question.hash, 1) == question
    with pytest.raises(InvalidRollout, match="task"):
        validate(plain, question.id, question.hash, 1)


def test_answers_differ_as_far_as_they_can() -> None:
    spec = {"name": "calendar_arithmetic", "parameters": {"tasks": ["is_leap_year"]}, "examples": 4}
    [question] = Tasks(TasksConfig.model_validate({"sources": [spec]})).draw(1, "k")
    answers = [m.content for m in question.examples if m.role == "assistant"]
    assert set(answers[:2]) == {"Yes", "No"}


class Silent:
    """A task that does not say its answers."""

    name, version, config = "silent", "1", "c"

    def question(self, seed: int, index: int) -> Question:
        return Question(QuestionId("silent", "1", "c", seed, index), (Message("user", f"{seed} {index}"),))

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        return [0.0 for _ in answers]


class Poor(Silent):
    """A task that seldom knows one."""

    def answer(self, question: QuestionId) -> str | None:
        return "12" if question.index == 7 else None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"name": "test_worked_examples:Silent"},
            "task 'test_worked_examples:Silent' cannot give examples: it needs the method",
        ),
        ({"name": "test_worked_examples:Poor"}, "has [01] examples within 100 questions, not 2"),
        ({"name": "chain_sum", "answer": "Answer: (.+)"}, "no examples can be written in this form"),
    ],
)
def test_a_task_without_examples_says_so(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Tasks(TasksConfig(sources=[TaskSpec.model_validate({**spec, "examples": 2})]))
