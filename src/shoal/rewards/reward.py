"""What a reward is: anything with the members of `Reward`. The easiest way to one of your own:

    class Short(Pointwise):
        def _score(self, pairs):
            return [1 / (1 + len(text)) for question, text in pairs]

A reward sees questions as this node made them, and the texts of answers, which strangers may have written. It returns
values of any size, as in TRL: only their differences count. None or NaN: it does not apply. `FAILED`: it failed because
of what the answer contains, which is the worst; with None, an answer that breaks a reward would escape it.
"""

import math
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from shoal.protocols import Grader
from shoal.rollout import Answer, Question, QuestionId, text_of
from shoal.untrusted import encodable

Items = Sequence[tuple[Question, Sequence[Answer]]]
"""Questions, each with the texts of answers to it, or with conversations."""
Pair = tuple[Question, str]
"""A question with one answer."""
Values = list[list[float | None]]
"""A reward, or None, for each answer to each question."""

FAILED = -math.inf
"""The value of an answer on which a reward failed."""
CACHED = 65_536
"""Values that are remembered: several nodes of one process score the same shared rollouts."""


class Reward(Protocol):
    """Scores answers and returns whatever they contain. Threads may share it."""

    @property
    def trouble(self) -> str:
        """The first failure and how many there were, in one line; empty if there was none."""
        ...

    def score(self, items: Items) -> Values:
        """For each answer a reward, None or `FAILED`, in the order given."""
        ...

    def close(self) -> None:
        """End the processes that it started."""
        ...


class Pointwise:
    """The base of rewards that look at one answer at a time. It scores each distinct text of a question once, all in
    one batch, and remembers the values. Subclasses implement `_score`."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()
        self._known: dict[tuple[QuestionId, str], float | None] = {}
        self._lock = threading.Lock()

    @property
    def trouble(self) -> str:
        """All failures by number; subclasses that know more say more."""
        return ", ".join(f"{count} x {reason}" for reason, count in self.failures.items() if count)

    def score(self, items: Items) -> Values:
        texts = [(question, [encodable(text_of(answer)) for answer in answers]) for question, answers in items]
        with self._lock:
            asked = {(question.id, text): (question, text) for question, answers in texts for text in answers}
            new = {key: pair for key, pair in asked.items() if key not in self._known}
            found = {key: self._known[key] for key in asked if key in self._known}
            found |= zip(new, self._score(list(new.values())) if new else [], strict=True)
            if len(self._known) > CACHED:
                self._known.clear()
            self._known |= found
        return [[found[question.id, text] for text in answers] for question, answers in texts]

    def close(self) -> None:
        """Nothing to end, unless a subclass says so."""

    def _score(self, pairs: list[Pair]) -> list[float | None]:
        raise NotImplementedError


class Verified:
    """A verifier as one reward among several. Whoever made the verifier closes it."""

    def __init__(self, verifier: Grader) -> None:
        self.verifier = verifier

    @property
    def trouble(self) -> str:
        return self.verifier.trouble

    def score(self, items: Items) -> Values:
        return [list(values) for values in self.verifier.score([(question.id, texts) for question, texts in items])]

    def close(self) -> None:
        """Nothing to end."""
