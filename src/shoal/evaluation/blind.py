"""What answers get that ignore the question: two baselines for held-out pass@1, which means something above them alone.

    constants(tasks, held_out)           # some 0.02 on each task of `pond`: its commonest right answer
    shuffled(evaluation, verifier)       # a model's own answers, scored against other questions of the same task

The commonest answer is counted among training questions, and its share among the held-out ones: the same that pass@1 is
about. The shuffled answers are those that were given anyway.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from shoal.evaluation.pass_at_k import Evaluation
from shoal.protocols import Grader
from shoal.rollout import Question, seed_of
from shoal.tasks import Task, Tasks
from shoal.tasks.draw import QuestionFailed
from shoal.tasks.environments.task import EnvironmentTask
from shoal.tasks.task import right_answer

COUNTED = 500  # questions of each task among which the commonest right answer is looked for
OTHERS = 3  # other questions that each answer is scored against, at most
Shares = dict[str, float | None]
"""By task; None where it is not known."""


def constants(tasks: Tasks, held_out: Mapping[str, Sequence[Question]]) -> Shares:
    """The share of each task's `held_out` questions whose right answer is the task's commonest one: among training
    questions, or without any among the other held-out ones. None for a task that does not know its right answers
    (`Answered`). Of an environment it is the share of conversations that are won
    without listening; None if it does not know how (`blind`)."""
    found: Shares = {}
    for label, task in zip(tasks.labels, tasks.tasks, strict=True):
        if isinstance(task, EnvironmentTask):
            scores = [task.blind(question.id) for question in held_out[label]]
            known = [score >= 1 for score in scores if score is not None]
            found[label] = fmean(known) if known and len(known) == len(scores) else None
            continue
        answers = right_answers(task, held_out[label])
        trained = Counter(filter(None, right_answers(task, _trained(tasks, label, task.name))))
        common = [answer for answer, _ in trained.most_common(1)] if trained else _leading(answers)
        found[label] = sum(answer in common for answer in answers) / len(answers) if any(answers) else None
    return found


def _leading(answers: Iterable[str]) -> list[str]:
    """The one answer that is commoner than all others, also without the question that is guessed; else none."""
    (first, times), (_, next_times) = [*Counter(filter(None, answers)).most_common(2), ("", 0), ("", 0)][:2]
    return [first] if times - 1 > next_times else []


def _trained(tasks: Tasks, label: str, name: str) -> Iterator[Question]:
    """The training questions among the first ones that can be made."""
    for number in range(COUNTED):
        with contextlib.suppress(QuestionFailed):
            question = tasks.made(label, seed_of("blind", name, number), 0)
            if not tasks.is_held_out(question):
                yield question


def shuffled(evaluation: Evaluation, verifier: Grader) -> Shares:
    """The share of answers by task that are right for other questions of it. None for a task with one question."""
    items, scored = [], []
    for task, group in evaluation.asked.items():
        for step in range(1, min(OTHERS + 1, len(group))):
            for asked, other in zip(group, group[step:] + group[:step], strict=True):
                items.append((other.question.id, [answer.answer for answer in asked.answers]))
                scored.append(task)
    right: dict[str, list[bool]] = {task: [] for task in evaluation.asked}
    for task, rewards in zip(scored, verifier.score(items), strict=True):
        right[task] += [reward >= 1 for reward in rewards]
    return {task: fmean(found) if found else None for task, found in right.items()}


def over_all(shares: Shares, questions: Mapping[str, int]) -> float | None:
    """The share over the questions of all tasks. None if it is unknown for one that has any."""
    known = [(shares[task], count) for task, count in questions.items() if count]
    if not known or any(share is None for share, _ in known):
        return None
    return sum((share or 0.0) * count for share, count in known) / sum(count for _, count in known)


def right_answers(task: Task, questions: Iterable[Question]) -> list[str]:
    """The right answer to each question; empty where the task names none."""
    return [(right_answer(task, question.id) or "").strip() for question in questions]
