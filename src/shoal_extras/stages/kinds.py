"""The stages: what is asked about peers' answers, what an answer to that counts as, and what questions may quote.

    archive = Archive()
    archive.add(Quotable(rollout.hash, "ada", "", question, ("4", "5")))
    archive.get(rollout.hash)          # None once newer ones have taken its place

Nothing is scored here. The verifier of the question that was asked first scores what `settle` returns.
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from shoal.rollout import Answer, Question
from shoal_extras.programs.propose import MAX_TESTS, MIN_TESTS, PROPOSE, asked, tests_of

SIZE: Final = 512
"""Rollouts that are kept."""


class Quotable(msgspec.Struct, frozen=True):
    """What a later question needs of a rollout."""

    hash: str
    node: str
    """Who made it."""
    stage: str
    """Empty for an answer to a question that quotes nothing."""
    question: Question
    """The one that the first answers were given to, whatever has been said of them since."""
    answers: tuple[str, ...]
    """The first answers: some that differ."""
    remarks: tuple[str, ...] = ()
    """What its maker says of these, in a later stage: some that differ."""
    live: bool = True
    """Whether the rewards of the rollout differ."""
    right: tuple[bool, ...] = ()
    """Of each of `answers`, whether it got full marks here."""


class Archive:
    """The last `size` rollouts. When it is full, the node with the most of them gives up its oldest, so that nobody
    who sends much takes the place of others. Not thread-safe."""

    def __init__(self, size: int = SIZE) -> None:
        self.size = size
        self.kept: dict[str, Quotable] = {}
        """By their hashes, the oldest first."""

    def add(self, one: Quotable) -> None:
        self.kept.setdefault(one.hash, one)
        if len(self.kept) > self.size:
            counts = Counter(kept.node for kept in self.kept.values())
            most = max(counts.values())
            del self.kept[next(hash for hash, kept in self.kept.items() if counts[kept.node] == most)]

    def get(self, hash: str) -> Quotable | None:
        return self.kept.get(hash)

    def of(self, stage: str) -> list[Quotable]:
        """Those of a stage, oldest first."""
        return [one for one in self.kept.values() if one.stage == stage]


SHOWN: Final = 3
"""Texts of a rollout that are quoted, at most."""
LONGEST: Final = 300
"""Bytes of each that are shown: a text has at most as many tokens as bytes."""
LETTERS: Final = "ABC"


class Stage(ABC):
    """One stage."""

    name: str
    version = "1"
    """Another version may ask otherwise."""
    after = ""
    """The stage that it follows, if a swarm has that one."""
    most = 1
    """Rollouts that one question quotes, at most."""

    @abstractmethod
    def ask(self, quoted: Sequence[Quotable], index: int) -> str | None:
        """What is asked. None: there is nothing to ask about these. `index`: of the question's identity."""

    def indices(self, one: Quotable) -> Sequence[int]:
        """Those of the questions about `one` from which something can be learned."""
        return [0] if one.live else []

    @abstractmethod
    def settle(self, quoted: Sequence[Quotable], index: int, answer: str) -> Answer:
        """What is scored in place of `answer`, as an answer to the question that was asked first."""


class Critique(Stage):
    """Which of a peer's answers is right? The answer that is picked is scored."""

    name = "critique"

    def ask(self, quoted: Sequence[Quotable], index: int) -> str | None:
        question, answers = quoted[0].question, quoted[0].answers
        if index or len(answers) < 2 or question.id.task == PROPOSE:
            return None
        told = "Which of these answers is right? Begin with its letter, then say why."
        return f"{question.text}\n\n{listed(answers)}\n\n{told}"

    def settle(self, quoted: Sequence[Quotable], index: int, answer: str) -> Answer:
        picked = re.match(r"[\W_]{0,20}([A-C])(?![^\W_])", answer)
        place = LETTERS.index(picked[1]) if picked else SHOWN
        answers = quoted[0].answers
        return answers[place] if place < len(answers) else ""


class Decide(Stage):
    """The first question again, with peers' answers and what peers say of them. The new answer is scored."""

    name, after, most = "decide", Critique.name, 3

    def ask(self, quoted: Sequence[Quotable], index: int) -> str | None:
        first = quoted[0]
        if index or first.question.id.task == PROPOSE:
            return None
        if any((other.question.id, other.answers) != (first.question.id, first.answers) for other in quoted[1:]):
            return None
        remarks = [
            texts[place] for place in range(SHOWN) for texts in (q.remarks for q in quoted) if place < len(texts)
        ]
        said = f"\n\nOthers say of them:\n{chr(10).join(map(quote, remarks[:SHOWN]))}" if remarks else ""
        told = "Now answer the question yourself, in the form that it asks for."
        return f"{first.question.text}\n\n{listed(first.answers)}{said}\n\n{told}"

    def settle(self, quoted: Sequence[Quotable], index: int, answer: str) -> Answer:
        return answer


class Solve(Stage):
    """A programming problem that a peer sets: some of its tests are shown, and a program has to pass all of them. The
    problem and the program are scored together by the task `propose`, which takes nothing on the peer's word."""

    name = "solve"

    def ask(self, quoted: Sequence[Quotable], index: int) -> str | None:
        question, answers = quoted[0].question, quoted[0].answers
        if question.id.task != PROPOSE or not 0 <= index < len(answers):
            return None
        tests = tests_of(answers[index])
        if not MIN_TESTS <= len(tests) <= MAX_TESTS:
            return None
        return asked([quote(test) for test in tests[: (len(tests) + 1) // 2]])

    def indices(self, one: Quotable) -> Sequence[int]:
        return [index for index, right in enumerate(one.right) if right]

    def settle(self, quoted: Sequence[Quotable], index: int, answer: str) -> Answer:
        return quoted[0].answers[index], answer


KINDS: Final[dict[str, Stage]] = {stage.name: stage for stage in (Critique(), Decide(), Solve())}


def listed(answers: Sequence[str]) -> str:
    """Peers' answers with a letter each."""
    pairs = zip(LETTERS, answers, strict=False)
    return "Others answered:\n" + "\n".join(f"{letter}:\n{quote(answer)}" for letter, answer in pairs)


def quote(text: str) -> str:
    """The beginning of a text with a mark before each line, so that it cannot pass for what stands around it."""
    data = text.encode("utf-8", "replace")
    shown = text if len(data) <= LONGEST else data[:LONGEST].decode("utf-8", "ignore") + "…"
    return "\n".join(f"> {line}" for line in shown.splitlines() or [""])
