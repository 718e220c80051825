"""Worked examples: questions of a task with their right answers, as turns before the question.

    examples = worked_examples(task, spec, is_held_out)     # user, assistant, user, assistant, ...

They depend on the task's parameters and on the form of answers alone, so all nodes show the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shoal.config.answer_form import in_form
from shoal.config.tasks import TaskSpec
from shoal.errors import UserError
from shoal.rollout import Message, Question, canonical, seed_of
from shoal.tasks.task import Answered, Task, right_answer

TRIES = 100
"""Questions that are looked at for examples."""


def worked_examples(task: Task, spec: TaskSpec, is_held_out: Callable[[Question], bool]) -> tuple[Message, ...]:
    """`spec.examples` questions with their right answers; as far as possible, answers that differ. None is held out.

    Raises `UserError` if the task does not say its right answers, has too few questions, or shows pictures.
    """
    if not spec.examples:
        return ()
    if not isinstance(task, Answered):
        raise UserError(f"task {spec.name!r} cannot give examples: it needs the method `answer` (shoal.tasks.Answered)")
    found = dict(_solved(task, is_held_out))
    if len(found) < spec.examples:
        raise UserError(
            f"task {spec.name!r} has {len(found)} examples within {TRIES} questions, not {spec.examples}: it names no "
            "right answers, or too few questions differ"
        )
    first = {answer: text for text, answer in reversed(found.items())}  # the first question of each answer
    order = sorted(found, key=lambda text: first[found[text]] != text)[: spec.examples]
    try:
        return tuple(
            message
            for text in order
            for message in (Message("user", text), Message("assistant", in_form(found[text], spec.answer)))
        )
    except ValueError as error:
        raise UserError(f"task {spec.name!r}: no examples can be written in this form: {error}") from error


def _solved(task: Answered, is_held_out: Callable[[Question], bool]) -> Iterator[tuple[str, str]]:
    """Texts of questions with their right answers."""
    seed, texts = seed_of("examples", task.name, task.config), set()
    for index in range(TRIES):
        try:
            question = task.question(seed, index)
        except UserError:
            raise
        except Exception:  # own code raises whatever it does: it may fail on some questions
            continue
        answer = right_answer(task, question.id)
        if question.pictures:
            raise UserError(f"task {task.name!r} gives no examples: its questions show pictures")
        key = canonical(question.text)
        if answer and key not in texts and not is_held_out(question):
            texts.add(key)
            yield question.text, answer
