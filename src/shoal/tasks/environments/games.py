"""The task `guess`, in which an environment answers back.

    game = Guess()
    game.begin(7)               # "guess 41 to 56"
    game.answer("48")           # ("higher", False)
    game.answer("52")           # ("right", True)
    game.score()                # 1.0

Of 16 numbers, four tries find 15 by halving. Without listening they find 4: the blind baseline is 0.25.
"""

from collections.abc import Sequence
from random import Random
from typing import Final

TRIES: Final = 4
FIRST, LAST = 10, 99
"""Of all numbers that a range may have."""


class Guess:
    """A range of numbers is named; one of them is to be found in four tries."""

    name = "guess"
    version = "1"
    max_turns = TRIES

    def __init__(self, numbers: int = 2**TRIES) -> None:
        """`numbers`: in a range. Raises `ValueError` for fewer than 2 or more than there are."""
        if not 2 <= numbers <= LAST - FIRST + 1:
            raise ValueError(f"numbers must be 2 to {LAST - FIRST + 1}")
        self.numbers = numbers
        self._low = self._secret = 0
        self._found = False

    def begin(self, seed: int) -> str:
        random = Random(seed)
        self._low = random.randint(FIRST, LAST - self.numbers + 1)
        self._secret = self._low + random.randrange(self.numbers)
        return f"guess {self._low} to {self._low + self.numbers - 1}"

    def answer(self, turn: str) -> tuple[str, bool]:
        said = turn.strip()
        if not (said.isascii() and said.isdecimal() and len(said) <= 2):
            return "a number", False
        self._found = int(said) == self._secret
        if self._found:
            return "right", True
        return "higher" if int(said) < self._secret else "lower", False

    def score(self) -> float:
        """1 if the number was found."""
        return float(self._found)

    def blind(self) -> Sequence[str]:
        """Tries that do not listen: as many numbers of the range."""
        return [str(self._low + step * self.numbers // TRIES) for step in range(TRIES)]
