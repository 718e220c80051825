"""The stages: what is asked about peers' answers, and what an answer to that counts as.

Nothing is scored here. The verifier of the question that was asked first scores what `settle` returns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

from shoal.tasks.stages.archive import Quotable

SHOWN: Final = 3
"""Texts of a rollout that are quoted, at most."""
LONGEST: Final = 300
"""Bytes of each that are shown: a model reads at most as many tokens."""
LETTERS: Final = "ABC"


class Stage(Protocol):
    """One stage."""

    name: str
    version: str
    """Another version may ask otherwise."""
    most: int
    """Rollouts that one question quotes, at most."""

    def ask(self, quoted: Sequence[Quotable]) -> str | None:
        """What is said after the question that was asked first. None: there is nothing to ask about these."""
        ...

    def settle(self, quoted: Sequence[Quotable], answer: str) -> str:
        """What is scored in place of `answer`, as an answer to the question that was asked first."""
        ...


class Critique:
    """Which of a peer's answers is right? The answer that is picked is scored."""

    name, version, most = "critique", "1", 1

    def ask(self, quoted: Sequence[Quotable]) -> str | None:
        answers = quoted[0].answers
        if len(answers) < 2:
            return None
        return f"{listed(answers)}\n\nWhich of these answers is right? Begin with its letter, then say why."

    def settle(self, quoted: Sequence[Quotable], answer: str) -> str:
        picked = re.match(r"\W{0,20}([A-C])(?![A-Za-z])", answer)
        place = LETTERS.index(picked[1]) if picked else SHOWN
        answers = quoted[0].answers
        return answers[place] if place < len(answers) else ""


class Decide:
    """The first question again, with peers' answers and what peers say of them. The new answer is scored."""

    name, version, most = "decide", "1", 3

    def ask(self, quoted: Sequence[Quotable]) -> str | None:
        first = quoted[0]
        if any((other.question.id, other.answers) != (first.question.id, first.answers) for other in quoted[1:]):
            return None
        remarks = [
            texts[place] for place in range(SHOWN) for texts in (q.remarks for q in quoted) if place < len(texts)
        ]
        said = f"\n\nOthers say of them:\n{chr(10).join(map(quote, remarks[:SHOWN]))}" if remarks else ""
        return f"{listed(first.answers)}{said}\n\nNow answer the question yourself, in the form that it asks for."

    def settle(self, quoted: Sequence[Quotable], answer: str) -> str:
        return answer


KINDS: Final[dict[str, Stage]] = {stage.name: stage for stage in (Critique(), Decide())}


def listed(answers: Sequence[str]) -> str:
    """Peers' answers with a letter each."""
    pairs = zip(LETTERS, answers, strict=False)
    return "Others answered:\n" + "\n".join(f"{letter}:\n{quote(answer)}" for letter, answer in pairs)


def quote(text: str) -> str:
    """The beginning of a text with a mark before each line, so that it cannot pass for what stands around it."""
    data = text.encode("utf-8", "replace")
    shown = text if len(data) <= LONGEST else data[:LONGEST].decode("utf-8", "ignore") + "…"
    return "\n".join(f"> {line}" for line in shown.splitlines() or [""])
