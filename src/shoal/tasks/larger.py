"""The task of `shoal demo`: which of two numbers is larger? A pretrained model learns it within minutes.

    shoal run --model smollm2 --task larger --partial-credit true

Its credit comes in steps, so that a model that is never right at first has something to climb.
"""

from collections.abc import Sequence
from random import Random

from shoal.rollout import Message, Question, QuestionId, hash_of


class Larger:
    """Which is larger, 36 or 39? Answer with the number only. Partial credit: 0.1 for any number."""

    name = "larger"
    version = "1"
    config = hash_of({"greatest": 99})

    def question(self, seed: int, index: int) -> Question:
        one, other = self._numbers(seed, index)
        text = f"Which is larger, {one} or {other}? Answer with the number only."
        return Question(QuestionId(self.name, self.version, self.config, seed, index), (Message("user", text),))

    def answer(self, question: QuestionId) -> str:
        return str(max(self._numbers(question.seed, question.index)))

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        right = self.answer(question)
        said = [answer.strip() for answer in answers]
        return [1.0 if text == right else 0.1 if text.isdecimal() else 0.0 for text in said]

    def _numbers(self, seed: int, index: int) -> list[int]:
        return Random(f"{seed} {index}").sample(range(10, 100), 2)
