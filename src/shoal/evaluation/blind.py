"""The blind baseline: what the best answer that ignores the question gets.

    blind_baseline(tasks, held_out)      # some 0.2 on `pond`: for each task, its commonest right answer

A held-out pass@1 says something about reading the question only where it is above this. The commonest answer is counted
among training questions, and its share among the held-out ones: the same that pass@1 is about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from shoal.rollout import Question, seed_of
from shoal.tasks import Answered, Task, Tasks

COUNTED = 500
"""Questions of each task among which the commonest right answer is looked for."""


def blind_baseline(tasks: Tasks, held_out: Mapping[str, Sequence[Question]]) -> float | None:
    """The share of `held_out` questions whose right answer is the commonest one of their task. None if there is a task
    that does not know its right answers (`Answered`)."""
    right = total = 0
    for label, task in zip(tasks.labels, tasks.tasks, strict=True):
        answers = right_answers(task, held_out[label])
        drawn = (task.question(seed_of("blind", task.name, number), 0) for number in range(COUNTED))
        counts = Counter(right_answers(task, (each for each in drawn if not tasks.is_held_out(each))))
        del counts[""]
        if answers and not any(answers):
            return None
        right += sum(answers.count(answer) for answer, _ in counts.most_common(1))
        total += len(answers)
    return right / total if total else None


def right_answers(task: Task, questions: Iterable[Question]) -> list[str]:
    """The right answer to each question; empty where the task names none."""
    known = task.answer if isinstance(task, Answered) else lambda question: None
    return [(known(question.id) or "").strip() for question in questions]
