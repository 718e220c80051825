"""Who teaches: a maker whose right answers carry what its wrong ones do not is limited for a time.

A text that is planted in right answers goes with the reward: right answers have it, wrong ones of the same form do not.
The words of another model or style are in both. So the evidence on a maker is the share of words that were taken out of
its right answers, less the share of such words in its wrong ones of the same form. From `LIMIT` on it teaches nothing;
after `GROUPS` groups this holds for `ROUNDS` rounds, each further time twice as long. Then it is looked at anew.

    maker = Maker()
    maker.look(right=[(11, ["so", "buy", "fish"])] * 4, wrong=[(8, [])] * 4)
    assert not maker.teaches(round=7)
"""

import math
from collections.abc import Iterable, Sequence

import msgspec

LIMIT, ERRORS = 0.045, 2.0
"""Evidence from which a maker does not teach: the share, and how many standard errors it is. In a study honest
makers had 0.00 and once 0.041, a text in one right answer of four 0.05 to 0.08."""
SPREAD = 0.05
"""The standard deviation of the share among answers, beside what was measured."""
GROUPS = 4
"""Groups of answers after which it is limited for a time."""
ROUNDS, LONGEST = 8, 128
"""For how long at first, and at most."""
FADE = 0.95
"""What each group leaves of the evidence of earlier ones."""
WORDS = 256
"""Words that are remembered as taken out."""
CLEAN = 12
"""Groups, fading, without such evidence after which earlier times are forgotten."""


class Said(msgspec.Struct):
    """How many texts have each word. Older ones fade."""

    texts: int = 0
    words: dict[str, int] = {}

    def add(self, words: Iterable[str], texts: int, most: int) -> None:
        """Counts a text. Beyond `texts` texts or `most` words all counts are halved."""
        self.texts += 1
        for word in words:
            self.words[word] = self.words.get(word, 0) + 1
        if self.texts > texts or len(self.words) > most:
            self.texts = (self.texts + 1) // 2
            self.words = {word: count // 2 for word, count in self.words.items() if count > 1}

    def share(self, word: str) -> float:
        return self.words.get(word, 0) / max(1, self.texts)


class Shares(msgspec.Struct):
    """The share of words in each of some answers, fading: number, sum, sum of squares."""

    number: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def add(self, shares: Sequence[float]) -> None:
        """Counts the answers of a group."""
        self.number = FADE * self.number + len(shares)
        self.total = FADE * self.total + sum(shares)
        self.squares = FADE * self.squares + sum(share**2 for share in shares)

    @property
    def mean(self) -> float:
        return self.total / self.number if self.number else 0.0

    @property
    def variance(self) -> float:
        return self.squares / self.number - self.mean**2 + SPREAD**2 if self.number else 0.0


class Maker(msgspec.Struct):
    """What this node remembers of one maker."""

    said: Said = msgspec.field(default_factory=Said)
    """Of its right answers to each question."""
    taken: Said = msgspec.field(default_factory=Said)
    """What was taken out of its right answers."""
    right: Shares = msgspec.field(default_factory=Shares)
    """Words that were taken out of right answers."""
    wrong: Shares = msgspec.field(default_factory=Shares)
    """Such words in wrong answers of the same form."""
    groups: float = 0.0
    times: int = 0
    """How often it was limited, until it was clean for long enough."""
    until: int = 0
    """The round of this node before which it does not teach."""
    found: float = 0.0
    """Its excess when it was limited last."""

    @property
    def excess(self) -> float:
        """The share of words that only its right answers have, without need."""
        return self.right.mean - self.wrong.mean

    @property
    def is_certain(self) -> bool:
        """Whether the excess is large, and no chance: right and wrong answers may vary as much as either of them."""
        variance = max(self.right.variance, self.wrong.variance)
        error = math.sqrt(sum(variance / shares.number for shares in (self.right, self.wrong) if shares.number))
        return self.excess > max(LIMIT, ERRORS * error)

    def look(self, right: Sequence[tuple[int, Sequence[str]]], wrong: Sequence[tuple[int, Sequence[str]]]) -> None:
        """Counts a group: the number of words of each right answer, with those that were taken out, and of each wrong
        answer of the same form, with its foreign ones."""
        for _, gone in right:
            self.taken.add({*gone}, WORDS, WORDS)
        known = self.taken.words
        self.right.add([len(gone) / max(1, words) for words, gone in right])
        self.wrong.add([sum(word in known for word in foreign) / max(1, words) for words, foreign in wrong])
        self.groups = FADE * self.groups + 1

    def teaches(self, round: int) -> bool:
        """Whether it teaches in `round`. Limits it if there is enough evidence."""
        if round < self.until:
            return False
        if not self.is_certain:
            self.times = 0 if self.groups > CLEAN else self.times
            return True
        if self.groups >= sum(FADE**group for group in range(GROUPS)) - 1e-9:
            self.until, self.times = round + min(LONGEST, ROUNDS << self.times), min(self.times + 1, 8)
            self.found, self.right, self.wrong, self.groups = self.excess, Shares(), Shares(), 0.0
        return False
