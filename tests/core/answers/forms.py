"""Answers as language models write them, with a person's verdict: the rows of `forms.jsonl`.

A row: the kind of scoring, the right answer, what is said, 1 or 0, and for a choice the name of its options.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

OPTIONS: Final[dict[str, dict[str, str]]] = {
    "cities": {"A": "Paris", "B": "Rome", "C": "Berlin", "D": "Madrid"},
    "numbers": {"A": "10", "B": "11", "C": "12", "D": "13"},
    "vitamins": {"A": "Vitamin A", "B": "Vitamin B", "C": "Vitamin C", "D": "None of the above"},
    "sentences": {
        "A": "The cell divides.",
        "B": "The cell dies.",
        "C": "A and B are both true.",
        "D": "All of the above",
    },
    "directions": {"1": "north", "2": "south", "3": "east", "4": "west"},
    "colours": dict(
        zip("ABCDEFGHIJKL", "red green blue black white grey pink brown gold silver teal lime".split(), strict=True)
    ),
    "planets": dict(zip("ABCDEFGHIJ", ["Mercury", "Venus", "Earth", "Mars"], strict=False)),
    "twelve": dict(zip("ABCDEFGHIJ", ["4", "8", "12", "16"], strict=False)),
    "energies": dict(
        zip(
            "ABCDEFGHIJ",
            [
                "5.80 MeV",
                "6.50 MeV",
                "4.90 MeV",
                "4.50 MeV",
                "6.10 MeV",
                "5.30 MeV",
                "6.00 MeV",
                "5.00 MeV",
                "5.40 MeV",
                "4.70 MeV",
            ],
            strict=False,
        )
    ),
    "answers": dict(zip("ABCDEFGHIJ", ["yes", "no"], strict=False)),
    "relations": dict(zip("ABCDEFGHIJ", ["entailment", "neutral", "contradiction"], strict=False)),
    "two cities": {"A": "Paris", "B": "Rome"},
    "lengths": {"A": "4 cm", "B": "5 cm", "C": "6 cm", "D": "none of these"},
    "roman": {"I": "one", "II": "two", "III": "three", "IV": "four"},
}
MISREAD: Final = {"x < 2 \\text{ or } x > 3", "\\frac12"}
"""What is said in rows whose right answers get 0."""
SECOND: Final = (0, 20)
"""Of the second set: wrong answers that get 1, right ones that get 0. Its writer had not read the scorers. At the first
try these were 8 and 60 of 690; math-verify's were 9 and 172 of 498 numbers and formulas. Then causes were mended."""

THIRD: Final = (0, 13)
"""Of a third set, the same. At the first try these were 55 and 48 of 935."""

FOURTH: Final = (7, 9)
"""Of a fourth set, the same. At the first try these were 14 and 24 of 937. The seven that earn follow written rules:
a percent sign or a word such as thousand may be the unit, `2x` is twice, and the last statement counts."""


class Row(NamedTuple):
    """An answer and a person's verdict."""

    kind: str
    right: str
    said: str
    wanted: float
    options: dict[str, str] | None = None


def rows(name: str = "forms") -> list[Row]:
    """All rows of a set, which is `forms`, `second`, `third` or `fourth`."""
    lines = Path(__file__).with_name(f"{name}.jsonl").read_text("utf-8").splitlines()
    return [Row(*row[:4], *map(OPTIONS.get, row[4:])) for row in map(json.loads, lines)]
