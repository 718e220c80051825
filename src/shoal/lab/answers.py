"""Right answers and wrong ones that look like them, as anybody can make them who makes the question again."""

from __future__ import annotations

import re
from random import Random

from shoal.config import TaskSpec
from shoal.rollout import Question
from shoal.tasks import Tasks


def right_answer(tasks: Tasks, question: Question) -> tuple[str, TaskSpec] | None:
    """What is right, bare (`in_form` is what the verifier wants), with the task's specification; None for a question
    whose task names no right answer, or an empty one."""
    task, spec = tasks.lookup(question.id)
    entry = getattr(task, "entry", None)  # a task of one's own has none
    answer = entry(question.id.seed, question.id.index)["answer"] if entry else None
    return (answer, spec) if answer else None  # base_conversion of reasoning-gym 0.1.25 says that zero is written ""


def in_form(answer: str, spec: TaskSpec) -> str:
    """`answer` as the verifier wants it."""
    return f"<answer>{answer}</answer>" if spec.answer == "tag" else answer


def wrong_answer(answer: str, chance: Random) -> str:
    """One that looks like `answer` and is another: its first number changed by 1 to 9, No for Yes, or "none"."""
    opposite = {"Yes": "No", "No": "Yes", "True": "False", "False": "True"}
    number = re.search(r"\d+", answer)
    if number is None:
        return opposite.get(answer, "none" if answer != "none" else "nothing")
    value, change = int(number[0]), chance.choice([-1, 1]) * chance.randint(1, 9)
    other = value + change if value + change >= 0 else value - change
    return f"{answer[: number.start()]}{other}{answer[number.end() :]}"
