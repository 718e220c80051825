"""Right answers, wrong ones that look like them, and a policy that gives them: the base of a scripted person
(`contributors`) and of an adversary (`attacks`). Anybody who makes a question again knows its right answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from string import ascii_lowercase
from typing import ClassVar

from shoal.config.tasks import TaskSpec
from shoal.protocols import Policy
from shoal.rollout import Completion, Question, seed_of
from shoal.tasks import Tasks
from shoal.tasks.task import right_answer as named


class Knowing:
    """A policy that knows the right answer to each question. Subclasses say in `texts` what they make of it. It never
    learns, and gives no completions where a task names no right answer."""

    seed_key: ClassVar[str]
    """Seeds its random choices."""

    def __init__(self, tasks: Tasks, instead_of: Policy | None = None) -> None:
        """`instead_of`: the policy that a checkpoint keeps in its place."""
        self.tasks = tasks
        self.instead_of = instead_of
        self.trouble = ""

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        """As `Policy.generate`."""
        self.trouble = ""
        return [
            self._group(question, num_generations, Random(seed_of(self.seed_key, seed, slot)))
            for slot, question in enumerate(questions)
        ]

    def save(self, folder: Path) -> None:
        if self.instead_of is not None:
            self.instead_of.save(folder)

    def _group(self, question: Question, size: int, chance: Random) -> tuple[Completion, ...]:
        known = right_answer(self.tasks, question)
        if known is None:
            self.trouble = f"no right answer is known for {question.id.task}"
            return ()
        texts = self.texts(*known, size, chance)
        chance.shuffle(texts)
        return tuple(map(Completion.of, texts))

    def texts(self, answer: str, spec: TaskSpec, size: int, chance: Random) -> list[str]:
        """At most `size` completions, in any order."""
        raise NotImplementedError


def right_answer(tasks: Tasks, question: Question) -> tuple[str, TaskSpec] | None:
    """The right answer (without its form) and the task's specification; None if the task names none."""
    task, spec = tasks.lookup(question.id)
    answer = named(task, question.id)
    return (answer, spec) if answer else None


def wrong_answer(answer: str, chance: Random) -> str:
    """A wrong answer that looks like `answer`: its first number changed by 1 to 9, No for Yes, one letter changed, or
    a digit more."""
    opposite = {"Yes": "No", "No": "Yes", "True": "False", "False": "True"}
    number = re.search(r"\d+", answer)
    if number is None:
        return opposite.get(answer) or _misspelt(answer, chance)
    value, change = int(number[0]), chance.choice([-1, 1]) * chance.randint(1, 9)
    other = value + change if value + change >= 0 else value - change
    return f"{answer[: number.start()]}{other}{answer[number.end() :]}"


def _misspelt(answer: str, chance: Random) -> str:
    places = [at for at, letter in enumerate(answer) if letter.lower() in ascii_lowercase]
    if not places:
        return f"{answer}{chance.randint(0, 9)}"
    at = chance.choice(places)
    return answer[:at] + chance.choice(ascii_lowercase.replace(answer[at].lower(), "")) + answer[at + 1 :]
