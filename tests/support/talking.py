"""Environments for tests: a short one, and some that misbehave."""

from __future__ import annotations

import random
import time
from typing import Any

from shoal.rollout import Completion, Part, Question, Rollout


class Echo:
    """Says a word back, and ends when it hears "end". Its score is the share of turns that are "good"."""

    name = "echo"
    version = "1"
    max_turns = 3

    def __init__(self, word: str = "word", fault: str = "") -> None:
        """`fault`: what it does when it hears "bad"."""
        self.word, self.fault = word, fault
        self.turns: list[str] = []

    def begin(self, seed: int) -> str:
        self.number = seed % 10_000
        return f"talk {self.number}"

    def answer(self, turn: str) -> tuple[Any, bool]:
        self.turns.append(turn)
        if turn == "bad":
            if self.fault == "raise":
                raise RuntimeError("it broke")
            if self.fault == "hang":
                while True:
                    time.sleep(0)
            if self.fault == "megabyte":
                return "x" * 2**20, False
            if self.fault == "random":
                return f"{self.word} {random.SystemRandom().random()}", False
            if self.fault == "number":
                return 7, False
        return f"{self.word} {len(self.turns)}", turn == "end"

    def score(self) -> float:
        return sum(turn == "good" for turn in self.turns) / self.max_turns


class Same(Echo):
    """Begins every conversation with the same words."""

    name = "same"

    def begin(self, seed: int) -> str:
        super().begin(seed)
        return "talk"


def conversation(*turns: str, cut: bool = False, observations: tuple[str, ...] = ()) -> Completion:
    """A completion of several turns."""
    return Completion(tuple(map(Part, turns)), "length" if cut else "stop", observations=observations)  # type: ignore[arg-type]


def talked(question: Question, *completions: Completion, node: str = "bob", round: int = 1, slot: int = 0) -> Rollout:
    return Rollout(question.id, question.hash, completions, node, round, slot)
