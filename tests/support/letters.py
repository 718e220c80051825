"""A task that even an untrained model has some right answers to: say one of these letters."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.rollout import Message, Question, QuestionId


class Letters:
    name = "letters"
    version = "1"
    config = "none"

    def question(self, seed: int, index: int) -> Question:
        return Question(
            QuestionId(self.name, self.version, self.config, seed, index), (Message("user", f"{seed + index} ?"),)
        )

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        return [float(any(letter in answer.lower() for letter in "aeimt")) for answer in answers]
