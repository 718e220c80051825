"""What others wrote, for a person to rank: answers to one question side by side, and nobody's name beside them.

    gallery = Gallery()
    gallery.add(scored)                            # admitted rollouts, as they come
    comparison = gallery.pick(own.name, random)    # two to four different answers, in a random order
    gallery.tiers(comparison.id, [1, 2, 2])        # best first, equals together

Nodes are asked questions of their own, so that answers of several nodes meet where a question has come to more than one
of them; where none has, different answers of one node are compared. A random order and no names keep out of a ranking
what is not in the answers.
"""

from __future__ import annotations

import unicodedata
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from shoal.rollout import Question, QuestionId, Scored, canonical, hash_of

QUESTIONS: Final = 512
"""Questions that are kept, those heard of last."""
ANSWERS: Final = 64
"""Different answers that are kept of each."""
SHOWN: Final = 4
"""Answers side by side, at most."""
OFFERED: Final = 64
"""Comparisons that wait for a ranking; older ones are forgotten."""
LONGEST: Final = 20_000
"""Characters of an answer that is shown; who wrote more is not ranked."""


@dataclass
class Answer:
    """One text, by whom and how it scored here."""

    text: str
    reward: float
    makers: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """Answers to be ranked."""

    id: str
    question: Question
    answers: tuple[Answer, ...]
    same: tuple[Question, ...]
    """The question under each id that it has: all of the same text."""

    @property
    def makers(self) -> int:
        """How many nodes wrote these."""
        return len({maker for answer in self.answers for maker in answer.makers})


class _Asked:
    """A question's text, and what was answered to it."""

    def __init__(self, question: Question) -> None:
        self.questions: OrderedDict[QuestionId, Question] = OrderedDict({question.id: question})
        self.answers: OrderedDict[str, Answer] = OrderedDict()

    def add(self, scored: Scored) -> None:
        self.questions[scored.question.id] = scored.question
        while len(self.questions) > ANSWERS:
            self.questions.popitem(last=False)
        for completion, reward in zip(scored.rollout.completions, scored.rewards, strict=True):
            text = completion.text
            if not canonical(text) or len(text) > LONGEST:
                continue
            answer = self.answers.setdefault(canonical(text), Answer(text, reward))
            answer.makers[scored.rollout.node] = None
            while len(self.answers) > ANSWERS:
                self.answers.popitem(last=False)


class Gallery:
    """Answers that came in, by the text of their question. Bounded, whoever sends. Not thread-safe."""

    def __init__(self) -> None:
        self._asked: OrderedDict[str, _Asked] = OrderedDict()
        self._offered: OrderedDict[str, Comparison] = OrderedDict()
        self._done: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._asked)

    def add(self, scored: Iterable[Scored]) -> None:
        for one in scored:
            key = one.question.hash
            self._asked.setdefault(key, _Asked(one.question)).add(one)
            self._asked.move_to_end(key)
            if len(self._asked) > QUESTIONS:
                self._asked.popitem(last=False)

    def pick(self, own: str, random: Random) -> Comparison | None:
        """A question whose answers have not been compared yet: of several nodes, if there is one. `own`: whose answers
        are not shown, since nobody judges himself."""
        candidates = []
        for key, asked in self._asked.items():
            answers = [answer for answer in asked.answers.values() if own not in answer.makers]
            if len(answers) >= 2 and key not in self._done:
                makers = {maker for answer in answers for maker in answer.makers}
                differ = len({answer.reward for answer in answers}) > 1
                candidates.append(((len(makers) > 1, differ), random.random(), key, answers))
        if not candidates:
            return None
        _, _, key, answers = max(candidates, key=lambda one: one[:2])
        asked = self._asked[key]
        chosen = _varied(answers, random)
        questions = tuple(asked.questions.values())
        id = hash_of((key, sorted(answer.text for answer in chosen), random.random()))
        comparison = Comparison(id, questions[0], tuple(chosen), questions)
        self._offered[id] = comparison
        if len(self._offered) > OFFERED:
            self._offered.popitem(last=False)
        return comparison

    def tiers(self, id: str, places: Sequence[int]) -> tuple[Comparison, list[list[str]]]:
        """A comparison with its answers by the places given to them, best first, and it is done. `LookupError` for one
        that is not waiting, `ValueError` for places that are none."""
        comparison = self._offered.get(id)
        if comparison is None:
            raise LookupError("this comparison is over; take another")
        if len(places) != len(comparison.answers) or not all(1 <= place <= SHOWN for place in places):
            raise ValueError(f"give each of the {len(comparison.answers)} answers a place from 1 to {SHOWN}")
        self.dismiss(id)
        placed = zip(comparison.answers, places, strict=True)
        by_place: dict[int, list[str]] = {}
        for answer, place in placed:
            by_place.setdefault(place, []).append(answer.text)
        return comparison, [by_place[place] for place in sorted(by_place)]

    def dismiss(self, id: str) -> None:
        """It is not to be shown again."""
        comparison = self._offered.pop(id, None)
        if comparison is not None:
            self._done[comparison.question.hash] = None
            while len(self._done) > QUESTIONS:
                self._done.popitem(last=False)


def shown(text: str) -> str:
    """`text` for a page: characters that are not seen, or turn what follows around, stand as "�"."""
    return "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else "�" for c in text)


def _varied(answers: Sequence[Answer], random: Random) -> list[Answer]:
    """Up to `SHOWN` of `answers` in a random order, of as many makers as can be: each next one is of those of whom the
    fewest have been taken."""
    left = random.sample(answers, len(answers))
    taken: dict[str, int] = {}
    chosen: list[Answer] = []
    while left and len(chosen) < SHOWN:
        best = min(left, key=lambda answer: min(taken.get(maker, 0) for maker in answer.makers))
        left.remove(best)
        chosen.append(best)
        for maker in best.makers:
            taken[maker] = taken.get(maker, 0) + 1
    return random.sample(chosen, len(chosen))
