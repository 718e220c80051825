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
    "roman": {"I": "one", "II": "two", "III": "three", "IV": "four"},
}
MISREAD: Final = {"³⁄₄", "\\frac{1}{-2}", "The solutions are 1 and 2.", "x < 2 \\text{ or } x > 3", "\\frac12"}
"""What is said in rows whose right answers get 0."""


class Row(NamedTuple):
    """An answer and a person's verdict."""

    kind: str
    right: str
    said: str
    wanted: float
    options: dict[str, str] | None = None


def rows() -> list[Row]:
    """All rows."""
    lines = Path(__file__).with_name("forms.jsonl").read_text("utf-8").splitlines()
    return [Row(*row[:4], *map(OPTIONS.get, row[4:])) for row in map(json.loads, lines)]
