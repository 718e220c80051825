"""What own code failed on, and why: a warning of one line.

trouble = Trouble()
trouble.count(64)
trouble.add("task 'mine'", "ZeroDivisionError: division by zero")
str(trouble)      # "task 'mine': ZeroDivisionError: division by zero (1 of 64 answers failed)"
"""

from __future__ import annotations

from shoal.errors import SHOWN, first_line
from shoal.untrusted import printable


class Trouble:
    """Keeps the first failure and counts all of them. Empty as long as nothing has failed."""

    def __init__(self, what: str = "answers failed") -> None:
        """`what`: is counted."""
        self._what = what
        self.first = ""
        self.failed = self.tried = 0

    def count(self, number: int) -> None:
        """Counts `number` more tries, failed or not."""
        self.tried += number

    def add(self, who: str, error: str) -> None:
        """`who` failed on one; `error`: its message, of which the first line counts."""
        self.failed += 1
        if not self.first:
            self.first = f"{who}: {printable(first_line(error), SHOWN)}"

    def __str__(self) -> str:
        return f"{self.first} ({self.failed} of {self.tried} {self._what})" if self.first else ""
