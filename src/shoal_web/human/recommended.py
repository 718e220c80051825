"""Which task a person is asked next: one that is neither too easy nor too hard for this person.

    choose(figures, "recommended", random)      # most often the tasks that the person solves half of the time
    choose(figures, "needed", random)      # the tasks that the swarm's models seldom solve
    choose(figures, "gcd", random)         # that one

Every node must be able to make a question again, so the swarm sets the parameters of tasks, and the choice is among
tasks. The weight of a task is p (1 - p), where p is how often the person solves it; a task without answers starts at p
= 0.5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

RECOMMENDED: Final = "recommended"
NEEDED: Final = "needed"
LAST: Final = 8
"""Own answers to a task that count."""
PRIOR: Final = 1.0
"""Answers, half of them right, that every task begins with."""
CLIP: Final = 0.05


@dataclass(frozen=True)
class Figures:
    """What is known of a task."""

    label: str
    weight: float
    """How often the swarm draws it, relative to other tasks."""
    answered: int
    """Own recent answers, at most `LAST`."""
    success: float | None
    """Their mean reward."""
    others: float | None
    """That of peers' completions that came in."""


def choose(figures: Sequence[Figures], want: str, random: Random) -> str:
    """The label of the task to ask. `want`: a rule, or a task's label."""
    if want not in (RECOMMENDED, NEEDED):
        return want
    worth = suitability if want == RECOMMENDED else need
    return random.choices([one.label for one in figures], [one.weight * worth(one) for one in figures])[0]


def suitability(one: Figures) -> float:
    """Highest where about half of one's answers are right."""
    p = ((one.success or 0.0) * one.answered + 0.5 * PRIOR) / (one.answered + PRIOR)
    return max(p * (1 - p), CLIP * (1 - CLIP))


def need(one: Figures) -> float:
    """The advantage of a right answer over what models give: their success is the baseline."""
    return max(CLIP, 1 - (0.5 if one.others is None else one.others))
