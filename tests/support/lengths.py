"""A task in levels that any model climbs: say something short. The shorter it must be, the harder."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.rollout import Message, Question, QuestionId, hash_of


class Short:
    name = "short"
    version = "1"

    def __init__(self, longest: int = 4) -> None:
        self.longest = longest
        self.config = hash_of({"longest": longest})

    def question(self, seed: int, index: int) -> Question:
        identity = QuestionId(self.name, self.version, self.config, seed, index)
        return Question(identity, (Message("user", f"{seed + index} = {self.longest} ?"),))

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        return [float(len(answer) <= self.longest) for answer in answers]
