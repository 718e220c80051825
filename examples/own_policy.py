"""A policy of your own: anything that answers questions.

    shoal run --model own_policy:Guesser --suite pond   # in this folder
    python own_policy.py

A policy that subclasses `shoal.LanguagePolicy` is trained by shoal's learner. Any other, as this one, answers and
shares; it learns only with a learner of your own (`--learner`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import shoal


class Guesser:
    """Answers with random numbers of one digit."""

    trouble = ""

    def __init__(self, config: shoal.Config, folder: Path | None) -> None:
        """`folder`: a checkpoint that `save` wrote, when a run is resumed."""

    def generate(
        self, questions: Sequence[shoal.Question], num_generations: int, seed: int
    ) -> list[tuple[shoal.Completion, ...]]:
        random = Random(seed)
        return [
            tuple(shoal.Completion.of(str(random.randrange(10))) for _ in range(num_generations)) for _ in questions
        ]

    def save(self, folder: Path) -> None: ...


if __name__ == "__main__":
    result = shoal.run(model="own_policy:Guesser", nodes=2, rounds=5, progress=True)
    print(result.metrics[["round", "node", "reward/local"]])
