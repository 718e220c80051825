"""An environment for pretrained models, in which a call tells the policy what it cannot know.

    shoal run --model smollm2 --task examples/lookup.py:Lookup --partial-credit true --max-completion-length 12

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
