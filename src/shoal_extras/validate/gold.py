"""Whether a task's scorer gives the right answers full marks, and what it gives to answers that ignore the question.

    found = validate(TasksConfig(suite="pond"), questions=200, seed=0)
    found["gcd"].gold               # 1.0: every right answer is right
    found["gcd"].constant           # the best one answer to all questions

A task whose right answers are not right cannot be learned; one that gives much to blind answers teaches to ignore the
question.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from shoal.config.answer_form import in_form
from shoal.config.tasks import TasksConfig
from shoal.rollout import Question, seed_of
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Task, Tasks
from shoal.tasks.draw import QuestionFailed
from shoal.tasks.task import right_answer

COMMON = 8
"""The commonest right answers, of which the best constant one is found."""


@dataclass(frozen=True)
class Tried:
    """A right answer, with the score that it got."""

    question: Question
    answer: str
    score: float
    why: str = ""
    """What kept it from being scored, such as "unsupported"; empty if the scorer finds it wrong."""


@dataclass(frozen=True)
class Validated:
    """What was found of one task."""

    questions: int
    """Different ones that were looked at."""
    answered: int
    """Those of them with a right answer."""
    wrong: list[Tried]
    """Right answers without full marks."""
    constant: float | None
    """The share of questions that the best one answer to all of them gets right. None: no right answers are known."""
    constant_answer: str
    others: float | None
    """The share of questions for which the right answer to the next one is right."""

    @property
    def gold(self) -> float | None:
        """The share of right answers that get full marks; None if none are known."""
        return 1 - len(self.wrong) / self.answered if self.answered else None


def validate(
    config: TasksConfig, questions: int, seed: int, on_progress: Callable[[str], None] = lambda label: None
) -> dict[str, Validated]:
    """What was found of each task, by its label. `questions`: of each, at most. `on_progress` gets the name of each
    task before it is checked. Raises `UserError` for tasks that cannot be made."""
    tasks = Tasks(config)
    with Verifier(config) as verifier:
        found = {}
        for label, task, spec in zip(tasks.labels, tasks.tasks, tasks.specs, strict=True):
            on_progress(label)
            found[label] = _validated(task, spec.answer, _different(tasks, label, questions, seed), verifier)
        return found


def _different(tasks: Tasks, label: str, most: int, seed: int) -> list[Question]:
    """Questions of a task with different texts, in training and held out."""
    texts: dict[str, Question] = {}
    for number in range(4 * most):
        if len(texts) == most:
            break
        for index in (0, 1):
            with suppress(QuestionFailed):  # one that cannot be made is told as the task's trouble
                question = tasks.made(label, seed_of("validate", seed, number), index)
                texts.setdefault(question.content, question)
    return list(texts.values())[:most]


def _validated(task: Task, form: str, questions: Sequence[Question], verifier: Verifier) -> Validated:
    right = [_right(task, question, form) for question in questions]
    known = [(question, answer) for question, answer in zip(questions, right, strict=True) if answer is not None]
    if not known:
        return Validated(len(questions), 0, [], None, "", None)
    answers = [answer for _, answer in known]
    common = [answer for answer, _ in Counter(answers).most_common(COMMON)]
    nexts = answers[1:] + answers[:1]
    items = [(q.id, [answer, other, *common]) for (q, answer), other in zip(known, nexts, strict=True)]
    scores = verifier.score(items)
    wrong = [_tried(verifier, *one) for one, row in zip(known, scores, strict=True) if row[0] < 1]
    shares = [sum(row[2 + place] >= 1 for row in scores) / len(known) for place in range(len(common))]
    best = max(range(len(common)), key=shares.__getitem__)
    others = sum(row[1] >= 1 for row in scores) / len(known) if len(known) > 1 else None
    return Validated(len(questions), len(known), wrong, shares[best], common[best], others)


def _tried(verifier: Verifier, question: Question, answer: str) -> Tried:
    """Scores it by itself, which tells why."""
    before = verifier.failures.copy()
    [[score]] = verifier.score([(question.id, [answer])])
    return Tried(question, answer, score, next(iter(verifier.failures - before), ""))


def _right(task: Task, question: Question, form: str) -> str | None:
    """A completion with the right answer; None where none is known."""
    answer = right_answer(task, question.id)
    if answer is None:
        return None
    try:
        return in_form(answer, form)
    except ValueError:  # a pattern that does not find the answer in itself
        return answer
