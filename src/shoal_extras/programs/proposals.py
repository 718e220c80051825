"""How a programming problem is written as text: a function f in Python, then its tests, a line each.

tests_of("def f(n):\\n    return n + 3\\nassert f(2) == 5\\nassert f(7) == 10")     # the last two lines
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

PROPOSE: Final = "propose"
"""The task that asks for problems."""
MIN_TESTS, MAX_TESTS = 2, 6


def tests_of(problem: str) -> list[str]:
    """The tests of a problem."""
    return [line.strip() for line in problem.splitlines() if line.startswith("assert ")]


def own_program(problem: str) -> str:
    """The program by which its maker shows that a problem can be solved: all but the tests."""
    return "\n".join(line for line in problem.splitlines() if not line.startswith("assert "))


def asked(shown: Sequence[str]) -> str:
    """What a solver is asked. `shown`: tests, each with a mark before it."""
    tests = "\n".join(shown)
    told = "Write a function f in Python that passes these tests and others like them"
    return f"{told}:\n{tests}\n\nAnswer with the program only."
