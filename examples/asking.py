"""A node that asks what the swarm lacks and it can give.

    shoal run --selection examples/asking.py:Asks
    shoal run --selection examples/asking.py:Asks --nodes 1 --local 8 --peers 0     # alone

From four times as many questions, drawn as ever, a node answers I. The chance of a question is in proportion to
p (1 - q) + 0.01 for its task: p is how often this node is right, q how often all nodes are on average. So nobody asks
what everybody knows, nor what nobody gets right, and a specialist asks what others cannot do yet. No node says what it
lacks: that shows in what it shares, which all others score themselves. Alone it is p (1 - p): learnability (arXiv
2408.15099).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import fmean

import msgspec
from ability import Knows, Task, task_of

import shoal
from shoal.rollout import seed_of

LEAST = 0.01
"""No task is forgotten: it may be learned by chance, or unlearned."""


class Asks(Knows):
    """Chooses what its node asks."""

    drawn = 4

    def worth(self, task: Task) -> float:
        everybody = fmean(self.rate(maker, task) for maker in {"": None, **self.rates})
        return self.rate("", task) * (1 - everybody) + LEAST

    def to_ask(self, questions: Sequence[shoal.Question], n: int) -> list[shoal.Question]:
        """Without replacement, in proportion to their worth (Efraimidis and Spirakis, 2006). The questions' own seeds
        decide, so a resumed run asks the same."""
        made = [number for number, question in enumerate(questions) if question.prompt]
        lots = {
            number: Random(seed_of("ask", questions[number].id.seed)).random()
            ** (1 / self.worth(task_of(questions[number])))
            for number in made
        }
        asked = sorted(made, key=lots.__getitem__, reverse=True)[:n]
        return [q if number in asked else msgspec.structs.replace(q, prompt=()) for number, q in enumerate(questions)]
