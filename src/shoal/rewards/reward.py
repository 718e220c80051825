"""What gives a reward, beside a verifier: anything with the members of `Reward`.

    class Short:                                    # a reward of one's own
        failures = Counter()
        def score(self, items):
            return [[1 / (1 + len(text)) for text in texts] for _, texts in items]
        def close(self): ...

A reward sees the question as this node made it and the answers' texts, which strangers may have written. It returns in
[0, 1], or None where it has nothing to say of an answer. Whoever fails because of what stands in an answer gives 0 and
counts it: were it None, an answer that breaks the function would be spared its judgement.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Protocol

from shoal.protocols import Verifier
from shoal.rollout import Question, QuestionId

Items = Sequence[tuple[Question, Sequence[str]]]
"""Questions, each with the texts of answers to it."""
Pair = tuple[Question, str]
"""A question with one answer."""
Values = list[list[float | None]]
"""A reward, or none, for each answer to each question."""

CACHED = 65_536
"""Values that are remembered: several nodes of one process score the same shared rollouts."""


class Reward(Protocol):
    """Scores answers, guarded: whatever stands in them, it returns. Threads may share it."""

    failures: Counter[str]
    """Answers that got 0, or were judged in part, for another reason than being bad, by the reason."""

    def score(self, items: Items) -> Values:
        """For each answer a reward in [0, 1], or None where it does not apply, in the order given."""
        ...

    def close(self) -> None:
        """End what runs beside."""
        ...


class Pointwise:
    """The base of rewards of a single answer: each distinct text of a question is scored once, all in one batch, and
    remembered. `_score` is all that is left to write."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()
        self._known: OrderedDict[tuple[QuestionId, str], float | None] = OrderedDict()
        self._lock = threading.Lock()

    def score(self, items: Items) -> Values:
        texts = [(question, [encodable(text) for text in answers]) for question, answers in items]
        with self._lock:
            asked = {(question.id, text): (question, text) for question, answers in texts for text in answers}
            new = {key: pair for key, pair in asked.items() if key not in self._known}
            found = {key: self._known[key] for key in asked if key in self._known}
            found |= zip(new, self._score(list(new.values())) if new else [], strict=True)
            self._remember(found)
        return [[found[question.id, text] for text in answers] for question, answers in texts]

    def close(self) -> None:
        """Nothing runs beside, unless a subclass says so."""

    def _score(self, pairs: list[Pair]) -> list[float | None]:
        raise NotImplementedError

    def _remember(self, found: dict[tuple[QuestionId, str], float | None]) -> None:
        for key, value in found.items():
            self._known[key] = value
            self._known.move_to_end(key)
        while len(self._known) > CACHED:
            self._known.popitem(last=False)


class Verified:
    """A verifier as one reward among several. It is closed by whoever made it."""

    def __init__(self, verifier: Verifier) -> None:
        self.verifier = verifier
        self.failures: Counter[str] = Counter()
        """Empty: the verifier counts its own."""

    def score(self, items: Items) -> Values:
        return [list(values) for values in self.verifier.score([(question.id, texts) for question, texts in items])]

    def close(self) -> None:
        """Not here."""


def unit(value: float, low: float = 0.0, high: float = 1.0) -> float:
    """`value` on the scale from `low` (0) to `high` (1), cut to it. Raises `ValueError` for NaN."""
    if math.isnan(value):
        raise ValueError("not a number")
    return min(1.0, max(0.0, (value - low) / (high - low)))


def encodable(text: str) -> str:
    """`text` with "?" for lone surrogates, which no encoding has."""
    return text.encode("utf-8", "replace").decode()
