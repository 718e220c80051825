"""The tasks `guess` and `lookup`, in which an environment answers back.

    game = Guess()
    game.begin(7)               # "guess 41 to 56"
    game.answer("48")           # ("higher", False)
    game.answer("52")           # ("right", True)
    game.score()                # 1.0

Of 16 numbers, four tries find 15 by halving. Without listening they find 4: the blind baseline is 0.25.

    talk = Lookup()
    talk.begin(7)               # "What is the number of Oslo?"
    talk.answer("look up Oslo")         # ("The number of Oslo is 47.", False)
    talk.answer("47")           # ("", True)

Numbers are 10 to 99, so that an answer that does not look is right once in 90.
"""

import re
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


CITIES: Final = (
    "Accra Athens Berlin Bogota Cairo Dakar Delhi Dublin Hanoi Havana Lagos Lima Lisbon London Madrid Manila Nairobi "
    "Oslo Paris Prague Quito Rabat Riga Rome Seoul Sofia Tokyo Tunis Vienna Warsaw"
).split()
SHOWN: Final = "Berlin"
"""The city of the example, which is never asked about."""
_CALL: Final = re.compile(r"\blook up:? +([A-Za-z]+)", re.IGNORECASE)


class Lookup:
    """What is the number of a city? A call tells. Partial credit: 0.3 for looking up the city, 0.1 for any look-up."""

    name = "lookup"
    version = "1"
    max_turns = 3
    example = (
        f"A table has a number for each city. What is the number of {SHOWN}?",
        f"look up {SHOWN}",
        f"The number of {SHOWN} is 31.",
        "31",
    )

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._asked = ""
        self._credit = 0.0

    def begin(self, seed: int) -> str:
        random = Random(seed)
        self._numbers = {city: random.randint(10, 99) for city in CITIES}
        self._asked = random.choice([city for city in CITIES if city != SHOWN])
        return f"What is the number of {self._asked}?"

    def answer(self, turn: str) -> tuple[str, bool]:
        if call := _CALL.search(turn):
            city = call[1].capitalize()
            self._credit = max(self._credit, 0.3 if city == self._asked else 0.1)
            if city not in self._numbers:
                return "There is no such city in the table.", False
            return f"The number of {city} is {self._numbers[city]}.", False
        if re.findall("[0-9]+", turn)[-1:] == [str(self._numbers[self._asked])]:
            self._credit = 1.0
        return "", True

    def score(self) -> float:
        return self._credit

    def blind(self) -> Sequence[str]:
        """An answer that does not look."""
        return ["55"]
