"""Nodes that share and never learn: a scripted person, and a picker with a reward model's taste.

    node.policy = Person(tasks, 0.8, node.policy)              # gives right answers, 4 times of 5
    node.policy = Picker(node.policy, node.scorer, 32)         # the best and the worst of 32, by the node's reward

They send ordinary rollouts: text, scored by whoever receives it. See docs/guides/lab.md. `Knowing` is a policy that
knows the right answers, as a person and an adversary (`attacks`) do: anybody who makes a question again knows its
right answer.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from string import ascii_lowercase
from typing import ClassVar

from shoal.config.answer_form import in_form
from shoal.config.tasks import TaskSpec
from shoal.protocols import Policy
from shoal.rewards.scorer import Scorer
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
        groups = []
        for slot, question in enumerate(questions):
            chance, texts = Random(seed_of(self.seed_key, seed, slot)), []
            if known := right_answer(self.tasks, question):
                texts = self.texts(*known, num_generations, chance)
                chance.shuffle(texts)
            else:
                self.trouble = f"no right answer is known for {question.id.task}"
            groups.append(tuple(map(Completion.of, texts)))
        return groups

    def save(self, folder: Path) -> None:
        if self.instead_of is not None:
            self.instead_of.save(folder)

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


TRIES = 4
"""Wrong answers that are tried for each one wanted: some are the same, and Yes has only one opposite."""


class Person(Knowing):
    """A policy like a person at the page of `shoal human`: with probability `skill` one answer of a group is right, and
    the others are wrong and plausible. No two are the same text, so a group is smaller where there are few wrong
    answers (Yes and No).
    """

    seed_key = "person"

    def __init__(self, tasks: Tasks, skill: float, instead_of: Policy) -> None:
        super().__init__(tasks, instead_of)
        self.skill = skill

    def texts(self, answer: str, spec: TaskSpec, size: int, chance: Random) -> list[str]:
        right = [answer] if chance.random() < self.skill else []
        wrong = list(dict.fromkeys(wrong_answer(answer, chance) for _ in range(TRIES * size)))
        return [in_form(text, spec.answer) for text in right + wrong[: size - len(right)]]


class Picker:
    """A policy that generates many answers to a question and gives the best half and the worst half of as many as are
    asked for, by its node's reward. Without the worst there would be nothing to compare the best with."""

    def __init__(self, policy: Policy, scorer: Scorer, generations: int) -> None:
        """`generations`: completions for each question, of which some are given."""
        self.policy = policy
        self.scorer = scorer
        self.generations = generations

    @property
    def trouble(self) -> str:
        return self.policy.trouble

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        """As `Policy.generate`. An odd number has one more of the best."""
        groups = self.policy.generate(questions, self.generations, seed)
        items = [(q.id, [c.text for c in group]) for q, group in zip(questions, groups, strict=True)]
        rewards = self.scorer.verifier.score(items)
        return [_extremes(group, values, num_generations) for group, values in zip(groups, rewards, strict=True)]

    def save(self, folder: Path) -> None:
        self.policy.save(folder)


def _extremes(group: Sequence[Completion], rewards: Sequence[float], count: int) -> tuple[Completion, ...]:
    """The best and the worst of a group, `count` in all, in their order."""
    order = sorted(range(len(group)), key=lambda i: -rewards[i])
    best = (count + 1) // 2
    chosen = [*order[:best], *order[max(best, len(order) - count // 2) :]]
    return tuple(group[i] for i in sorted(chosen))
