"""Others' answers for a person to rank: answers to one question side by side, without names.

    gallery = Gallery()
    gallery.add(scored)                            # admitted rollouts, as they come
    comparison = gallery.pick(own.name, random)    # two to four different answers, in a random order
    gallery.tiers(comparison.id, [1, 2, 2])        # best first, equals together
    gallery.dismiss(comparison.id)                 # it is done

Each node draws questions of its own. Some questions come to several nodes, and their answers are compared first;
otherwise different answers of one node are. The order is random and names are hidden, so that only the answers count.
"""

import unicodedata
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from shoal.admission.bounded import Recent, RecentKeys
from shoal.rollout import Question, QuestionId, Scored, canonical, hash_of
from shoal.untrusted import piles_marks

QUESTIONS: Final = 512
"""Questions that are kept, the latest."""
ANSWERS: Final = 64
"""Different answers that are kept of each."""
SHOWN: Final = 4
"""Answers side by side, at most."""
OFFERED: Final = 64
"""Comparisons that wait for a ranking, the latest."""
LONGEST: Final = 20_000
"""Characters of the longest answer that is shown."""


@dataclass
class Answer:
    """A text, its makers, and its reward by this machine's verifier."""

    text: str
    reward: float
    makers: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """Answers to be ranked."""

    id: str
    same: tuple[Question, ...]
    """All questions of this text: nodes have it under different ids."""
    answers: tuple[Answer, ...]

    @property
    def question(self) -> Question:
        return self.same[0]

    @property
    def makers(self) -> int:
        """How many nodes wrote these."""
        return len({maker for answer in self.answers for maker in answer.makers})


@dataclass
class _Asked:
    questions: OrderedDict[QuestionId, Question] = field(default_factory=OrderedDict)
    answers: OrderedDict[str, Answer] = field(default_factory=OrderedDict)

    def add(self, scored: Scored) -> None:
        self.questions[scored.question.id] = scored.question
        _drop_oldest(self.questions, ANSWERS)
        for completion, reward in zip(scored.rollout.completions, scored.rewards, strict=True):
            text = completion.text
            if len(text) <= LONGEST and not piles_marks(text) and (same := canonical(text)):
                answer = self.answers.setdefault(same, Answer(text, reward))
                answer.makers[scored.rollout.node] = None
                _drop_oldest(self.answers, ANSWERS)


class Gallery:
    """Answers by the text of their question. Bounded, whoever sends. Not thread-safe."""

    def __init__(self) -> None:
        self._asked: Recent[str, _Asked] = Recent(QUESTIONS, _Asked)
        self._offered: OrderedDict[str, Comparison] = OrderedDict()
        self._done: RecentKeys[str] = RecentKeys(QUESTIONS)

    def __len__(self) -> int:
        return len(self._asked)

    def add(self, scored: Iterable[Scored]) -> None:
        for one in scored:
            self._asked[one.question.hash].add(one)

    def pick(self, own: str, random: Random) -> Comparison | None:
        """A question whose answers have not been compared yet, preferably of several nodes, and with different rewards.
        `own`: whose answers are left out, since nobody judges himself."""
        waiting: list[tuple[bool, bool, float, list[Answer], tuple[Question, ...]]] = []
        for key, asked in self._asked.items():
            answers = [answer for answer in asked.answers.values() if own not in answer.makers]
            if len(answers) > 1 and key not in self._done:
                several = len({maker for answer in answers for maker in answer.makers}) > 1
                differ = len({answer.reward for answer in answers}) > 1
                waiting.append((several, differ, random.random(), answers, tuple(asked.questions.values())))
        if not waiting:
            return None
        *_, answers, questions = max(waiting, key=lambda one: one[:3])
        id = hash_of((questions[0].hash, random.random()))
        comparison = Comparison(id, questions, tuple(_varied(answers, random)))
        self._offered[id] = comparison
        _drop_oldest(self._offered, OFFERED)
        return comparison

    def tiers(self, id: str, places: Sequence[int]) -> tuple[Comparison, list[list[str]]]:
        """A comparison that waits, and its answers by their places, the best first. Raises `LookupError` if it
        does not wait, `ValueError` for wrong places."""
        comparison = self._offered.get(id)
        if comparison is None:
            raise LookupError("this comparison is over; take another")
        if len(places) != len(comparison.answers) or not all(1 <= place <= SHOWN for place in places):
            raise ValueError(f"give each of the {len(comparison.answers)} answers a place from 1 to {SHOWN}")
        by_place: dict[int, list[str]] = {}
        for answer, place in zip(comparison.answers, places, strict=True):
            by_place.setdefault(place, []).append(answer.text)
        return comparison, [by_place[place] for place in sorted(by_place)]

    def dismiss(self, id: str) -> None:
        """Never shows this comparison again."""
        comparison = self._offered.pop(id, None)
        if comparison is not None:
            self._done.add(comparison.question.hash)


def shown(text: str) -> str:
    """`text` for a page, with "�" for characters that are invisible or change the direction of text."""
    return "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else "�" for c in text)


def _drop_oldest(items: OrderedDict[Any, Any], most: int) -> None:
    while len(items) > most:
        items.popitem(last=False)


def _varied(answers: Sequence[Answer], random: Random) -> list[Answer]:
    """Up to `SHOWN` of `answers` in a random order, of as many makers as possible."""
    left = random.sample(answers, len(answers))
    taken = Counter[str]()
    chosen: list[Answer] = []
    while left and len(chosen) < SHOWN:
        best = min(left, key=lambda answer: min(taken[maker] for maker in answer.makers))
        left.remove(best)
        chosen.append(best)
        taken.update(best.makers.keys())
    return random.sample(chosen, len(chosen))
