"""A task whose scorer is as careless as can be: it takes long, or dies, when the answer says so."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shoal.rollout import Message, Question, QuestionId


class Slow:
    name, version, config = "slow", "1", "slow"

    def question(self, seed: int, index: int) -> Question:
        return Question(
            QuestionId(self.name, self.version, self.config, seed, index), (Message("user", f"{seed} {index}"),)
        )

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        return [self._score(answer) for answer in answers]

    def _score(self, answer: str) -> float:
        kind = answer.split()[0]
        if kind == "loop":
            for _ in range(10**8):
                pass
        elif kind == "backtrack":
            re.match(r"(a+)+$", "a" * 60 + "b")  # in C, for longer than anybody lives
        elif kind == "memory":
            return float(len([0] * 10**10))
        elif kind == "recurse":
            return self._score(answer)
        return float(kind == "right")
