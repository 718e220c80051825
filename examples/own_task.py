"""A task of your own: questions whose answers can be checked.

    shoal run --task own_task:Larger --partial-credit true --max-completion-length 4      # in this folder
    python own_task.py

A task makes the question of any `seed` and `index` again, on any machine, and scores answers to it. Partial credit
gives a model something to climb: with 1 for a right answer and 0 for all else, a model that never finds one learns
nothing. In these thirty rounds guppy learns to answer with a number; a larger model goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import shoal
from shoal.rollout import hash_of


class Larger:
    """Which of two numbers is larger?"""

    name = "larger"
    version = "1"  # change it whenever the questions change

    def __init__(self, greatest: int = 99) -> None:
        """`greatest`: a parameter that a configuration can set (`parameters = { greatest = 999 }`)."""
        self.greatest = greatest
        self.config = hash_of({"greatest": greatest})

    def question(self, seed: int, index: int) -> shoal.Question:
        """Depends on nothing but its two numbers and the parameters."""
        one, other = self._numbers(seed, index)
        id = shoal.QuestionId(self.name, self.version, self.config, seed, index)
        return shoal.Question(id, (shoal.Message("user", f"Which is larger, {one} or {other}? "),))

    def answer(self, question: shoal.QuestionId) -> str:
        """The right answer, for worked examples and the blind baseline. It may be left out."""
        return str(max(self._numbers(question.seed, question.index)))

    def score(self, question: shoal.QuestionId, answers: Sequence[str]) -> list[float]:
        """Rewards in [0, 1]. It runs in a process without files and network, for strangers' answers, too."""
        right = self.answer(question)
        said = [answer.strip() for answer in answers]
        return [1.0 if text == right else 0.1 if text.isdecimal() else 0.0 for text in said]

    def _numbers(self, seed: int, index: int) -> list[int]:
        return Random(f"{seed} {index}").sample(range(10, self.greatest + 1), 2)


if __name__ == "__main__":
    result = shoal.run(
        task="own_task:Larger", partial_credit=True, nodes=2, rounds=30, max_completion_length=4, progress=True
    )
    print(result.metrics.groupby("round")["reward/local"].mean())
