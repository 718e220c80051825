"""Nodes that give and never learn: a scripted person, and a picker who has a model's taste and no verifier.

    node.policy = Person(tasks, skill=0.8)                     # knows right answers, and says them 4 times of 5
    node.policy = Picker(node.policy, node.scorer, 32)         # the best and the worst of 32, by what its node rewards

What they send is an ordinary rollout: text, scored by whoever receives it. See docs/contributors.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from shoal.apps.lab.answers import Knowing, in_form, wrong_answer
from shoal.apps.lab.config import ExperimentConfig
from shoal.config.tasks import TaskSpec
from shoal.protocols import Policy
from shoal.rewards.scorer import Scorer
from shoal.rollout import Completion, Question
from shoal.tasks import Tasks

TRIES = 4
"""Wrong answers that are thought of for each one that is wanted: some are the same, and Yes has but one opposite."""


class Person(Knowing):
    """A policy like somebody at the page of `shoal human`: with the probability `skill` the right answer is among what
    he gives to a question, and all else is wrong and plausible.

    No two answers of a group are the same text, as nobody writes one twice; so a group of several is live of itself
    where it has the right one, and is smaller where there are not so many wrong ones (Yes and No).
    """

    series = "person"

    def __init__(self, tasks: Tasks, skill: float, instead_of: Policy) -> None:
        """`instead_of`: the policy that a checkpoint keeps."""
        super().__init__(tasks, instead_of)
        self.skill = skill

    def _texts(self, answer: str, spec: TaskSpec, size: int, chance: Random) -> list[str]:
        right = [answer] if chance.random() < self.skill else []
        wrong = list(dict.fromkeys(wrong_answer(answer, chance) for _ in range(TRIES * size)))
        return [in_form(text, spec) for text in right + wrong[: size - len(right)]]


class Picker:
    """A policy that generates many answers to a question and gives some: half of them the best, half the worst, by what
    its node is rewarded by. With a reward model (`[[rewards]]`, `experiment.rewarded`) no verifier has a say in it.

    The best alone would be no group to compare with; the worst are what the others are better than. Answers that the
    reward holds equal are taken as they came, and the same text may be among them several times.
    """

    def __init__(self, policy: Policy, scorer: Scorer, generations: int) -> None:
        """`generations`: completions for each question, of which some are given."""
        self.policy = policy
        self.scorer = scorer
        self.generations = generations

    @property
    def trouble(self) -> str:
        return self.policy.trouble

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        """As `Policy.generate`. Of an odd number more are of the best; of one, that is the best."""
        groups = self.policy.generate(questions, self.generations, seed)
        items = [(q.id, [c.text for c in group]) for q, group in zip(questions, groups, strict=True)]
        rewards = self.scorer.verifier.score(items)
        return [_extremes(group, values, num_generations) for group, values in zip(groups, rewards, strict=True)]

    def save(self, folder: Path) -> None:
        self.policy.save(folder)


def _extremes(group: Sequence[Completion], rewards: Sequence[float], count: int) -> tuple[Completion, ...]:
    """The best and the worst of a group, `count` in all, in the order in which they came."""
    order = sorted(range(len(group)), key=lambda i: -rewards[i])
    best = (count + 1) // 2
    chosen = [*order[:best], *order[max(best, len(order) - count // 2) :]]
    return tuple(group[i] for i in sorted(chosen))


def make_contributor(settings: ExperimentConfig, policy: Policy, tasks: Tasks, scorer: Scorer) -> Person | Picker:
    """What answers in the place of `policy`, of a node that scores by `scorer`."""
    if settings.contributor == "person":
        return Person(tasks, settings.contributor_skill, policy)
    return Picker(policy, scorer, settings.contributor_generations)
