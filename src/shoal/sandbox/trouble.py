"""Why answers have no score of their own although nobody knows whether they are wrong: a warning of one line."""

from __future__ import annotations

from shoal.untrusted import printable

SHOWN = 200
"""Characters of an error that are shown. It may quote a stranger's text."""


class Trouble:
    """Keeps the first failure of a scorer and counts all of them. Empty as long as nothing has failed."""

    def __init__(self, what: str = "failed") -> None:
        """`what`: happened to the answers."""
        self._what = what
        self.first = ""
        self.failed = self.scored = 0

    def count(self, answers: int) -> None:
        """`answers` more have been scored, whether that failed or not."""
        self.scored += answers

    def add(self, scorer: str, error: str) -> None:
        """`scorer` failed on one answer; `error`: its message, of which the first line counts."""
        self.failed += 1
        if not self.first:
            self.first = f"{scorer}: {printable(first_line(error), SHOWN)}"

    def __str__(self) -> str:
        return f"{self.first} ({self.failed} of {self.scored} answers {self._what})" if self.first else ""


def describe(error: BaseException) -> str:
    """The type of an error and the first line of its message."""
    line = first_line(str(error))
    return f"{type(error).__name__}: {line[:SHOWN]}" if line else type(error).__name__


def first_line(text: str) -> str:
    return next((line for line in text.strip().splitlines() if line), "")
