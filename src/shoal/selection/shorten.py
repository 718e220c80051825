"""What earns, teaches: a peer's right answer loses the words that are foreign here and that it does not need.

A policy gradient reinforces every token of a right answer, so a right answer can carry any other text. A word is
foreign if this node hardly says it, or if its maker says it, or repeats it, five times as often as this node. Foreign
words go, all at once or else by halves, wherever this node's own verifier gives the shorter answer the same reward. The
node learns from what is left; a wrong answer stays as it is. All numbers count as one word here, as does the question.

    shortener = Shortener()
    shortener.hear(local, peers)                            # each round
    batch = shortener.shorten(batch, scorer)                # what was selected
    batch = shortener.teaching(batch, round)                # without makers that do not teach
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import msgspec

from shoal.rewards.scorer import Scorer
from shoal.rollout import Answer, Completion, Scored
from shoal.selection.evidence import Maker, Said

WORD = re.compile(
    r" ?([\u2e80-\u9fff]|(?:(?![\u2e80-\u9fff])[^\W\d_])+|\d+(?:,\d{3})*(?:\.\d+)?|[^\w\s]|_|\s{2,}|[^\S \n])"
)
"""A word with the space before it: letters, a number, a sign, a Chinese or Japanese letter, unusual white space. A
number goes whole: `.8` earns what 0.8 earns, and is worse."""
NUMBER, ASKED = "a number", "a word of the question"
FAMILIAR = 0.02
"""A word is foreign that a smaller share of own completions has."""
OWN = 0.2
"""A word is foreign whose share of own completions is less than this part of its share of the maker's right answers."""
SEEN = 4
"""Questions that a maker has answered with a word before that counts."""
FORM = 0.7
"""A word is of the form of answers that so many of a maker's right answers have."""
TRIES = 16
"""Shorter forms of one answer that are verified, at most."""
MAKERS, LONGEST = 256, 32
"""Makers that are remembered, and letters of a word."""
FILE = "shortener.msgpack"

Shorter = tuple[Completion, set[int]]
"""A shorter answer, and the numbers of the words that it lost."""


@dataclass
class Trial:
    """A right answer on its way to be shorter."""

    scored: Scored
    text: Completion
    reward: float
    pending: list[list[int]]
    """Words that may have to go, by their numbers, each list at once."""
    places: list[int] = field(default_factory=list)
    """Where in its group it stands."""
    gone: set[int] = field(default_factory=set)
    shorter: Completion | None = None

    def next(self) -> Completion | None:
        """What is tried next; None if nothing is left of a turn."""
        return without(self.text, self.gone | {*self.pending[0]})

    def learn(self, found: tuple[Completion, float] | None) -> None:
        """Takes what the verifier says of it."""
        words = self.pending.pop(0)
        half = len(words) // 2
        if found and found[1] >= self.reward - 1e-9:
            self.gone, self.shorter = self.gone | {*words}, found[0]
        elif half:
            self.pending += [words[:half], words[half:]]


class Shortener(msgspec.Struct):
    """Shortens peers' right answers, says who teaches, and remembers which words this node and its peers say."""

    own: Said = msgspec.field(default_factory=Said)
    makers: dict[str, Maker] = {}
    """The maker that was heard longest ago is forgotten first."""

    def hear(self, local: Sequence[Scored], peers: Sequence[Scored]) -> None:
        """Counts the words of what is new in this round."""
        for scored in local:
            for completion in scored.rollout.completions:
                self.own.add({*keys(scored, completion)}, 4096, 65_536)
        for scored in peers:
            if texts := [scored.rollout.completions[at] for at in right(scored)]:
                said = self._maker(scored).said
                said.add({key for completion in texts for key in keys(scored, completion)}, 64, 1024)
        while len(self.makers) > MAKERS:
            del self.makers[next(iter(self.makers))]

    def limited(self, maker: str, round: int) -> bool:
        """Whether nobody learns from `maker` in this round."""
        return maker in self.makers and round < self.makers[maker].until

    def limits(self, round: int) -> dict[str, tuple[int, float]]:
        """The makers that do not teach after `round`: for how many rounds more, and the share of their right answers'
        words that these did not need and their wrong ones lack."""
        limited = {name: maker for name, maker in self.makers.items() if maker.until > round + 1}
        return {name: (maker.until - round - 1, maker.found) for name, maker in limited.items()}

    def shorten(self, batch: Sequence[Scored], scorer: Scorer) -> list[Scored]:
        """`batch` with shorter right answers. Rewards stay; `Scored.shortened` says how much went. Each answer takes no
        verification if no word is foreign, and `TRIES` at most; those of all answers are made together. Nothing happens
        before this node has said anything itself."""
        trials: dict[tuple[int, Answer, float], Trial] = {}  # answers that are alike share one
        for place, scored in enumerate(batch if self.own.texts else ()):
            for at in right(scored) if scored.from_peer else ():
                completion, reward = scored.rollout.completions[at], scored.rewards[at]
                if foreign := self._foreign(scored, completion):
                    new = Trial(scored, completion, reward, [foreign])
                    trials.setdefault((place, completion.answer, reward), new).places.append(at)
        for _ in range(TRIES):
            tried = [(trial, trial.next()) for trial in trials.values() if trial.pending]
            asked = [(trial.scored, shorter) for trial, shorter in tried if shorter]
            found = iter(scorer.changed(asked) if asked else ())
            for trial, shorter in tried:
                trial.learn(next(found) if shorter else None)
        done: dict[int, dict[int, Shorter]] = defaultdict(dict)
        for (place, *_), trial in trials.items():
            if trial.shorter:
                done[place] |= dict.fromkeys(trial.places, (trial.shorter, trial.gone))
        for place, scored in enumerate(batch):
            if scored.from_peer and self.own.texts:
                self._look(scored, done[place])
        return [taught(s, done[place]) if s.from_peer else s for place, s in enumerate(batch)]

    def teaching(self, batch: Sequence[Scored], round: int) -> list[Scored]:
        """`batch`, as it was shortened, without peers that do not teach in `round` (`evidence`)."""
        teaches = {s.rollout.node: self._maker(s).teaches(round) for s in batch if s.from_peer}
        return [s for s in batch if not s.from_peer or teaches[s.rollout.node]]

    def save(self, folder: Path) -> None:
        (folder / FILE).write_bytes(msgspec.msgpack.encode(self))

    def load(self, folder: Path) -> None:
        if (folder / FILE).exists():  # not if it was off before
            kept = msgspec.msgpack.decode((folder / FILE).read_bytes(), type=Shortener)
            self.own, self.makers = kept.own, kept.makers

    def _look(self, scored: Scored, done: Mapping[int, Shorter]) -> None:
        """Counts the evidence of a group. A wrong answer is comparable if it has all words that are left of each right
        answer and that most of its maker's right answers have, such as those of the form."""
        asked, maker, answers = words_of(scored.question.text), self._maker(scored), scored.rollout.completions
        if len(answers) == 1:
            return  # a single answer has nothing to be compared with
        kinds = [[kind_of(word, asked) for word in words_in(answer)] for answer in answers]
        gone = {at: done[at][1] if at in done else set[int]() for at in right(scored)}
        left = [{kind for number, kind in enumerate(kinds[at]) if number not in gone[at]} for at in gone]
        form = {kind for kind in set[str].intersection(*left) if maker.said.share(kind) >= FORM} if left else set()
        wrong = [at for at in range(len(answers)) if at not in gone and form <= {*kinds[at]}]
        maker.look(
            [(len(kinds[at]), [kinds[at][number] for number in gone[at]]) for at in gone],
            [(len(kinds[at]), [kinds[at][number] for number in self._foreign(scored, answers[at])]) for at in wrong],
        )

    def _maker(self, scored: Scored) -> Maker:
        """What is known of its maker, which was heard last now."""
        maker = self.makers.pop(scored.rollout.node, None) or Maker()
        self.makers[scored.rollout.node] = maker
        return maker

    def _foreign(self, scored: Scored, completion: Completion) -> list[int]:
        """The numbers of the foreign words of an answer."""
        said, asked = self.makers.get(scored.rollout.node, Maker()).said, words_of(scored.question.text)
        text = [(word, kind_of(word, asked)) for word in words_in(completion)]
        counts = Counter(kind for _, kind in text)

        def is_foreign(word: str, kind: str) -> bool:
            habits = [key for key in (word, *repeated(kind, counts[kind])) if said.words.get(key, 0) >= SEEN]
            return self.own.share(kind) < FAMILIAR or any(self.own.share(k) < OWN * said.share(k) for k in habits)

        known = {pair: is_foreign(*pair) for pair in {*text}}
        return [number for number, pair in enumerate(text) if known[pair]]


def taught(scored: Scored, done: Mapping[int, Shorter]) -> Scored:
    """The rollout with shorter completions, by their places."""
    completions = scored.rollout.completions
    changed = tuple(done[at][0] if at in done else completion for at, completion in enumerate(completions))
    before, after = (sum(len(texts[at].text) for at in right(scored)) for texts in (completions, changed))
    rollout = msgspec.structs.replace(scored.rollout, completions=changed)
    return msgspec.structs.replace(scored, rollout=rollout, shortened=1 - after / before if before else None)


def right(scored: Scored) -> list[int]:
    """The places of the completions that an update makes likelier."""
    expected = scored.mean_reward if scored.baseline is None else scored.baseline
    return [at for at, reward in enumerate(scored.rewards) if reward > expected + 1e-6]


def words_in(completion: Completion) -> Iterator[str]:
    return (match[1][:LONGEST] for part in completion.parts for match in WORD.finditer(part.text))


def words_of(text: str) -> set[str]:
    return {word.casefold() for word in words_in(Completion.of(text)) if word[0].isalpha()}


def kind_of(word: str, asked: set[str]) -> str:
    """What a word counts as; `asked`: the words of its question."""
    return NUMBER if word[0].isdecimal() else ASKED if word.casefold() in asked else word


def keys(scored: Scored, completion: Completion) -> Iterator[str]:
    """What is counted of a completion: each word, and what it counts as, once, twice, four times and so on."""
    asked, words = words_of(scored.question.text), [*words_in(completion)]
    yield from words
    for kind, times in Counter(kind_of(word, asked) for word in words).items():
        yield from repeated(kind, times)


def repeated(kind: str, times: int) -> list[str]:
    """A word that stands so many times in a text: itself, and two, four, eight, ... of it."""
    return [kind, *(f"{1 << power} x {kind}" for power in range(1, times.bit_length()))]


def without(completion: Completion, gone: set[int]) -> Completion | None:
    """The completion without the words of these numbers; None if nothing is left of a turn."""
    numbers = count()

    def left(match: re.Match[str]) -> str:
        return match[0] if next(numbers) not in gone else " " if match[1].isspace() else ""

    parts = tuple(msgspec.structs.replace(p, text=WORD.sub(left, p.text).strip()) for p in completion.parts)
    whole = msgspec.structs.replace(completion, parts=parts, token_ids=None, logprobs=None, observations=())
    return whole if all(part.text for part in parts) else None
