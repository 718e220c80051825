"""The unit behind a number: 25 km is no right answer where 25 m is.

    is_other_unit("25000km", "25000 m", is_wanted)      # True: a known unit, and another one than the right answer's

A unit that is unknown, or missing on either side, decides nothing.
"""

import re
from collections.abc import Callable
from itertools import islice
from typing import Final

NAMES: Final = """
m meter metre|km kilometer kilometre|cm centimeter centimetre|mm millimeter millimetre|mile|foot feet ft|inch inche
g gram gramme|kg kilogram kilogramme kilo|mg milligram|pound lb|ounce oz|l liter litre|ml milliliter millilitre|gallon
s sec second|min minute|h hr hour|day|week|month|year|dollar|cent|euro
"""
"""The names of each unit, without the plural's s."""
UNITS: Final = {name: unit.split()[0] for unit in NAMES.strip().replace("\n", "|").split("|") for name in unit.split()}
MEASURE: Final = re.compile(r"([-−]?\d[\d.,]*)\s?([a-zA-Z]{1,16})")
MOST: Final = 16
"""Numbers of an answer that are looked at."""


def unit_of(word: str) -> str:
    """The first name of the unit; empty if it is not known."""
    word = word.casefold()
    return UNITS.get(word) or UNITS.get(word.removesuffix("s") if len(word) > 2 else "", "")


def is_other_unit(said: str, right: str, is_wanted: Callable[[str], bool]) -> bool:
    """Whether the right number has another unit in `said` than in `right`. `is_wanted`: whether a number is it."""
    behind = MEASURE.search(right)
    wanted = unit_of(behind[2]) if behind else ""
    if not wanted:
        return False
    found = {unit_of(word) for value, word in islice(MEASURE.findall(said), MOST) if is_wanted(value.rstrip(".,"))}
    return bool(found - {""}) and wanted not in found
