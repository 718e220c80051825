"""The scores of answers to which one right answer is known.

score("number", "The legs make 14 in all.", "14")      # 1.0
kind_of("$1,200")                                        # "number"
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Final

from shoal.answers.choice import DIGITS, LETTERS, WIDE, choice
from shoal.answers.mathematics import equal
from shoal.answers.number import Number, number, same, whole_number
from shoal.answers.place import bare, place
from shoal.rollout import canonical

SCORES: Final = ("exact", "text", "number", "choice", "math")
"""The core's own kinds."""
SCORES_VERSION: Final = 10
"""Another one whenever an answer may get another score: nodes then do not exchange rollouts."""

MOST_NUMBER: Final = 500
"""Characters of a right answer that may be a number."""
_UNIT = re.compile(r"(?<=[\d.)])\s?([a-zµ°€$£][a-zµ°²³/^2-3€$£]{0,14}(?:\s[a-z]{1,15})?)$")


def score(kind: str, said: str, right: str, options: Mapping[str, str] | None = None, comma: bool = False) -> float:
    """1 for a right answer, otherwise 0. `options`: texts by labels. `comma`: a comma stands before decimals."""
    match kind:
        case "exact" | "text":
            return float(any(_same_text(kind, one, right) for one in _texts(said)))
        case "number":
            where, wanted = place(said), _right_number(right, comma)
            found = number(where.text, comma) if where else None
            if where is None or wanted is None or not _is(wanted, found):
                return 0.0
            return float(
                right.isdigit() or not is_other_unit(where.text, right, lambda value: _is(wanted, number(value, comma)))
            )
        case "choice":
            label = right if right in (options or ()) else _label(right)
            return float(label != "" and choice(said, options or labels_like(label)) == label)
        case "math":
            return float(equal(right, said))
    raise ValueError(kind)


def read(kind: str, said: str, right: str, options: Mapping[str, str] | None = None, comma: bool = False) -> str:
    """What a scorer of this kind takes for the answer, for people; empty if it finds none. The rest as in `score`."""
    where = place(said)
    if where is None:
        return ""
    if kind == "number":
        found = number(where.text, comma)
        return "" if found is None else str(found)
    return choice(said, options or labels_like(_label(right))) if kind == "choice" else bare(where.text)


def kind_of(right: str, comma: bool = False) -> str:
    """The kind of scoring of a right answer: number, also with a unit; choice for a single capital; otherwise text."""
    if right.isascii() and right.isdigit():
        return "number"
    if re.fullmatch(r"\(?[A-Z]\)?", right):
        return "choice"
    unit = _UNIT.search(right)
    value = right[: unit.start()] if unit and unit[1].lower() not in ("am", "pm") else right
    return "number" if len(right) <= MOST_NUMBER and whole_number(value, comma) else "text"


def fits(kind: str, right: str, comma: bool = False) -> bool:
    """Whether a right answer can be read by this kind of scoring."""
    if kind == "number":
        return _right_number(right, comma) is not None
    return kind != "choice" or _label(right) != ""


def labels_like(right: str) -> str:
    """The labels that there may be where one is right."""
    return DIGITS if right.strip("()[]. ").isdigit() else LETTERS


@lru_cache(maxsize=4096)
def _label(right: str) -> str:
    return choice(right, labels_like(right))


def _is(wanted: Number, found: Number | None) -> bool:
    return found is not None and same(found, wanted)


_right_number = lru_cache(maxsize=4096)(number)


def _texts(said: str) -> list[str]:
    """What may be the text of an answer: all of it, its place, the first sentence there."""
    where = place(said)
    if where is None:
        return []
    first = re.split(r"(?<=[.!?])\s|\n", where.text, maxsplit=1)[0] if where.how == "statement" else where.text
    return list(dict.fromkeys((said.strip(), where.text, bare(where.text), bare(first))))


def _same_text(kind: str, said: str, right: str) -> bool:
    if len(said) > 10 * len(right) + 1000:  # no white space and marks make them equal
        return False
    one, other = (canonical(text.translate(WIDE).replace("’", "'")) for text in (said, right))
    if kind == "text":
        one, other = (
            re.sub(r"^(?:the|an?)\s(?=\S)", "", re.sub(r"\s?,\s?", ", ", bare(text).casefold()))
            for text in (one, other)
        )
    return one == other or bare(one) == bare(other) != ""


# The unit behind a number: 25 km is no right answer where 25 m is. One that is unknown, or missing on either side,
# decides nothing.

NAMES: Final = """
m meter metre|km kilometer kilometre|cm centimeter centimetre|mm millimeter millimetre|mile|foot feet ft|inch inche
g gram gramme|kg kilogram kilogramme kilo|mg milligram|pound lb|ounce oz|l liter litre|ml milliliter millilitre|gallon
s sec second|min minute|h hr hour|day|week|month|year|dollar|cent|euro
"""
"""The names of each unit, without the plural's s."""
UNITS: Final = {name: unit.split()[0] for unit in NAMES.strip().replace("\n", "|").split("|") for name in unit.split()}
MEASURE: Final = re.compile(r"([-−]?\d[\d.,]*)\s?([a-zA-Z]{1,16})")
_DOLLARS = re.compile(r"^([^$]*)\$(\d[\d.,]*)(?!\s?[a-zA-Z])([^$]*)$")
MOST: Final = 16
"""Numbers of an answer that are looked at."""


def unit_of(word: str) -> str:
    """The first name of the unit; empty if it is not known."""
    word = word.casefold()
    return UNITS.get(word) or UNITS.get(word.removesuffix("s") if len(word) > 2 else "", "")


def is_other_unit(said: str, right: str, is_wanted: Callable[[str], bool]) -> bool:
    """Whether the right number has another unit in `said` than in `right`. `is_wanted`: whether a number is it."""
    wanted = _units(right, is_wanted)
    found = _units(said, is_wanted) if wanted else set()
    return bool(found) and (not wanted & found or (len(found) > 1 and " or " in said))


def _units(text: str, is_wanted: Callable[[str], bool]) -> set[str]:
    """The units that are known of the numbers that are `wanted`."""
    measures = islice(MEASURE.findall(_DOLLARS.sub(r"\1\2 dollars\3", text)), MOST)
    return {unit_of(word) for value, word in measures if unit_of(word) and is_wanted(value.rstrip(".,"))}
