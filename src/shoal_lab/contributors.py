"""Nodes that share and never learn: a scripted person, and a picker with a reward model's taste.

    node.policy = Person(tasks, 0.8, node.policy)              # gives right answers, 4 times of 5
    node.policy = Picker(node.policy, node.scorer, 32)         # the best and the worst of 32, by the node's reward

They send ordinary rollouts: text, scored by whoever receives it. See docs/guides/lab.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from shoal.config.answer_form import in_form
from shoal.config.tasks import TaskSpec
from shoal.protocols import Policy
from shoal.rewards.scorer import Scorer
from shoal.rollout import Completion, Question
from shoal.tasks import Tasks
from shoal_lab.answers import Knowing, wrong_answer
from shoal_lab.config import ExperimentConfig

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


def make_contributor(settings: ExperimentConfig, policy: Policy, tasks: Tasks, scorer: Scorer) -> Person | Picker:
    """What answers in place of `policy` at a node that scores by `scorer`."""
    if settings.contributor == "person":
        return Person(tasks, settings.contributor_skill, policy)
    return Picker(policy, scorer, settings.contributor_generations)
