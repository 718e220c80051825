"""Refuses answers that would hold up their scorer: they score 0 unread. No right answer is among them.

A scorer that takes more than linear time is slow for a text made for it. For the scorers of reasoning-gym that a few
characters can hold up for seconds, the number of steps is estimated here, in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

MAX_STEPS = 1000
"""Steps of a car (rush_hour) or turns of a cube (rubiks_cube). Solutions have 200 at most."""
MAX_DIGITS = 3
"""Digits of an exponent: a coin's probability has none, and 1e1000 is a number of a thousand digits."""
MAX_READ = 5000
"""Steps of reading or trying a formula (propositional_logic), unless the question itself needs more."""


def is_too_much(task: str, answer: str, entry: Mapping[str, Any]) -> bool:
    """Whether the scorer of reasoning-gym's `task` would take too long for `answer`."""
    check = _CHECKS.get(task)
    return check is not None and check(answer, entry["metadata"])


def _rush_hour(answer: str, _: Mapping[str, Any]) -> bool:
    return _total(re.findall(r"[A-Z][+-](\d+)", answer)) > MAX_STEPS


def _rubiks_cube(answer: str, _: Mapping[str, Any]) -> bool:
    # "U3" is three turns
    words = (re.fullmatch(r"[^\d]*(\d*)", word) for word in answer.split())
    return _total([word[1] or "1" for word in words if word]) > MAX_STEPS


def _coin_flip(answer: str, _: Mapping[str, Any]) -> bool:
    # the scorer takes commas out
    exponents = re.findall(r"[eE][+-]?([\d_]+)", answer.replace(",", ""))
    return any(len(exponent) > MAX_DIGITS for exponent in exponents)


def _propositional_logic(answer: str, metadata: Mapping[str, Any]) -> bool:
    """Its scorer reads the rest of a text again at each sign, and tries all assignments to the variables of premises
    and answer, whatever their names."""
    own = metadata["premises"]
    longest = max(own, key=len)
    return any(
        steps([*own, answer]) > max(MAX_READ, 2 * steps([*own, longest])) for steps in (_reading_steps, _trying_steps)
    )


def _reading_steps(formulas: list[str]) -> int:
    return sum((len(_parts(formula)) - 1) * len(formula) for formula in formulas)


def _trying_steps(formulas: list[str]) -> int:
    parts = [part for formula in formulas for part in _parts(formula)]
    variables = {part.strip() for part in parts} - {""}
    return (1 << len(variables)) * len(parts)


def _parts(formula: str) -> list[str]:
    """The texts between the signs."""
    return re.split("[∧∨¬→↔()]", formula)


def _total(numbers: list[str]) -> int:
    """The sum of numbers in digits, any of which may be long."""
    return sum(int(number) if len(number) <= 9 else MAX_STEPS + 1 for number in numbers)


_CHECKS: dict[str, Callable[[str, Mapping[str, Any]], bool]] = {
    "rush_hour": _rush_hour,
    "rubiks_cube": _rubiks_cube,
    "coin_flip": _coin_flip,
    "propositional_logic": _propositional_logic,
}
