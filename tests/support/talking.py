"""Environments for tests: a short one, and some that misbehave."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shoal.rollout import Answer, Completion, Part, Question, QuestionId, Rollout
from shoal.sandbox.pipes import Result
from shoal.tasks.environments.task import EnvironmentTask, play

if TYPE_CHECKING:
    from shoal.policy.language import LanguagePolicy  # torch: the sandbox imports this file, too


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


class Few(Echo):
    """Begins with one of a few words."""

    name = "few"

    def begin(self, seed: int) -> str:
        super().begin(seed)
        return f"talk {seed % self.words}"

    def __init__(self, words: int = 2) -> None:
        super().__init__()
        self.words = words


def conversation(*turns: str, cut: bool = False, observations: tuple[str, ...] = ()) -> Completion:
    """A completion of several turns."""
    return Completion(tuple(map(Part, turns)), "length" if cut else "stop", observations=observations)  # type: ignore[arg-type]


def talked(question: Question, *completions: Completion, node: str = "bob", round: int = 1, slot: int = 0) -> Rollout:
    return Rollout(question.id, question.hash, completions, node, round, slot)


class Here:
    """Holds conversations again in this process, as a verifier does in another."""

    def __init__(self, task: EnvironmentTask) -> None:
        self.task = task
        self.failures: Counter[str] = Counter()
        self.asked: list[int] = []
        """How many conversations were held in each call."""

    def replay(self, conversations: Sequence[tuple[QuestionId, Answer]], scored: bool = True) -> list[Result]:
        self.asked.append(len(conversations))
        return [self._one(question, (a,) if isinstance(a, str) else a) for question, a in conversations]

    def _one(self, question: QuestionId, turns: tuple[str, ...]) -> Result:
        held = self.task.begin(question)
        observations, ended = play(held, turns)
        return Result(held.score(), observations=observations, ended=ended)


def whole_of(policy: LanguagePolicy, question: Question, completion: Completion) -> tuple[list[int], list[int]]:
    """All tokens of a conversation after its prompt, and the places of the policy's own among them."""
    ids, observed = policy.conversation_ids(question, completion)
    whole: list[int] = []
    own = []
    for number, id in enumerate(ids):
        whole += observed.get(number, [])
        own.append(len(whole))
        whole.append(id)
    return whole, own
