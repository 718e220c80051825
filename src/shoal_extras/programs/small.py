"""Small functions of a number, each with tests: the right answers to `propose`, and the questions of `infer`.

    small = small_function(Random(7))           # SmallFunction("str(n) + 'kelp'", ...)
    small.program                               # "def f(n):\\n    return str(n) + 'kelp'"
    small.tests([6251, 3])                      # ["assert f(6251) == '6251kelp'", "assert f(3) == '3kelp'"]

Two tests say which function it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

LOWEST: Final = 10
HIGHEST: Final = 9999
"""Of the numbers with which first tests call."""
WORDS: Final = (
    "amber birch cedar delta ember fjord grove heron islet juniper kelp lagoon maple north otter pine".split()
)


class SmallFunction(NamedTuple):
    """A function of a number."""

    body: str
    """A right program, after "return"."""
    function: Callable[[int], Any]
    """The same, to make the tests."""

    @property
    def program(self) -> str:
        return f"def f(n):\n    return {self.body}"

    def tests(self, numbers: Sequence[int]) -> list[str]:
        """A test with each of `numbers`."""
        return [f"assert f({n}) == {self.function(n)!r}" for n in numbers]


def small_function(random: Random) -> SmallFunction:
    """One of 336 functions. Each of the eight kinds is equally likely."""
    digit, number, word = random.randint(1, 9), random.randint(10, 99), random.choice(WORDS)
    kinds = (
        SmallFunction(f"n + {digit}", lambda n: n + digit),
        SmallFunction(f"n * 10 + {digit}", lambda n: n * 10 + digit),
        SmallFunction(f"[n, {number}]", lambda n: [n, number]),
        SmallFunction(f"[{number}, n]", lambda n: [number, n]),
        SmallFunction(f"[n % 10, {number}]", lambda n: [n % 10, number]),
        SmallFunction(f"str(n) + '{word}'", lambda n: f"{n}{word}"),
        SmallFunction(f"'{word}' + str(n)", lambda n: f"{word}{n}"),
        SmallFunction(f"str(n)[::-1] + '{word}'", lambda n: f"{str(n)[::-1]}{word}"),
    )
    return random.choice(kinds)


def calls(random: Random, first: int, count: int) -> list[int]:
    """The numbers with which `count` tests call: `first`, then some of two digits. Each ends with another digit, so
    that no two tests want the same."""
    digits = random.sample([digit for digit in range(10) if digit != first % 10], count - 1)
    return [first, *(10 * random.randint(1, 9) + digit for digit in digits)]
