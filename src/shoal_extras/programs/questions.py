"""The task `programs`: small programming questions with hidden tests, both made from the question's identity.

    task = Programs()
    question = task.question(seed=7, index=0)      # Write a function f(n) in Python that returns ...
    task.score(question.id, [task.answer(question.id)])        # [1.0]

Each question has numbers and words of its own, so that no one program is right twice. One example is shown; the tests
are not.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from shoal.rollout import Message, Question, QuestionId, hash_of
from shoal_extras.programs.monty import load
from shoal_extras.programs.problems import Problem, passed_share
from shoal_extras.programs.propose import WORDS

TESTS: Final = 6
"""Hidden tests of a question."""
TRIES: Final = 200
"""Inputs among which these are found."""
DEFINES, PASSES = 0.1, 0.4
"""Partial credit: for a program that defines f, and for the share of tests that it passes."""
PRIMES: Final = (53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149)


class Asked(NamedTuple):
    """What a template makes."""

    argument: str
    """What the function takes."""
    returns: str
    """What it returns, in words."""
    body: str
    """A right program, after "return"."""
    function: Callable[[Any], Any]
    """The same, to make the tests."""
    inputs: Callable[[Random], Any]


class Programs:
    """Small functions of a number, a list or a text.

    Partial credit: 0.1 for a program that defines f, and up to 0.4 more with the share of the tests that it passes.
    """

    name = "programs"
    version = "1"
    runs_programs = True

    def __init__(self) -> None:
        """Raises `UserError` without Monty."""
        self.config = hash_of({"rules": load(), "tests": TESTS})

    def question(self, seed: int, index: int) -> Question:
        asked, (example, *_) = self._made(seed, index)
        text = (
            f"Write a function f({asked.argument}) in Python that returns {asked.returns}. "
            f"For example, f({example!r}) returns {asked.function(example)!r}. Answer with the program only."
        )
        return Question(QuestionId(self.name, self.version, self.config, seed, index), (Message("user", text),))

    def answer(self, question: QuestionId) -> str:
        asked, _ = self._made(question.seed, question.index)
        return f"def f({asked.argument}):\n    return {asked.body}"

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        asked, (_, *hidden) = self._made(question.seed, question.index)
        tests = tuple(f"assert f({value!r}) == {asked.function(value)!r}" for value in hidden)
        problem = Problem("", ("f", *tests))
        return [_credit(round(passed_share(problem, answer) * (1 + TESTS))) for answer in answers]

    def _made(self, seed: int, index: int) -> tuple[Asked, list[Any]]:
        """A question with an input for its example and those of its tests, all different in what they give."""
        random = Random(f"{seed} {index}")
        asked = random.choice(TEMPLATES)(random)
        inputs: dict[str, Any] = {}
        for _ in range(TRIES):
            value = asked.inputs(random)
            inputs.setdefault(repr(asked.function(value)), value)
            if len(inputs) > TESTS:
                break
        return asked, list(inputs.values())


def _credit(passed: int) -> float:
    """`passed`: whether there is an f, plus the tests that it passes."""
    if passed in (0, 1 + TESTS):
        return float(passed > 0)
    return DEFINES + PASSES * (passed - 1) / TESTS


def _linear(random: Random) -> Asked:
    a, b, m = random.randint(2, 50), random.randint(1, 99), random.choice(PRIMES)
    return Asked(
        "n",
        f"{a} times n plus {b}, modulo {m}",
        f"({a} * n + {b}) % {m}",
        lambda n: (a * n + b) % m,
        lambda random: random.randint(0, 999),
    )


def _remainder(random: Random) -> Asked:
    k = random.randint(2, 5)
    r, c = random.randrange(k), random.randint(2, 999)
    return Asked(
        "numbers",
        f"the sum of all numbers in the list that leave {r} when divided by {k}, plus {c}",
        f"sum(x for x in numbers if x % {k} == {r}) + {c}",
        lambda numbers: sum(x for x in numbers if x % k == r) + c,
        _numbers,
    )


def _clipped(random: Random) -> Asked:
    low, high = random.randint(5, 40), random.randint(60, 95)
    c = random.randint(1, 99)
    return Asked(
        "numbers",
        f"the list of numbers with {low} in place of smaller ones and {high} in place of larger ones, each plus {c}",
        f"[min(max(x, {low}), {high}) + {c} for x in numbers]",
        lambda numbers: [min(max(x, low), high) + c for x in numbers],
        _numbers,
    )


def _between(random: Random) -> Asked:
    low, high, c = random.randint(5, 40), random.randint(60, 95), random.randint(2, 99)
    return Asked(
        "numbers",
        f"how many numbers in the list are greater than {low} and less than {high}, times {c}",
        f"{c} * sum({low} < x < {high} for x in numbers)",
        lambda numbers: c * sum(low < x < high for x in numbers),
        lambda random: [random.randint(0, 99) for _ in range(random.randint(3, 20))],
    )


def _every(random: Random) -> Asked:
    start, step, word = random.randint(0, 3), random.randint(2, 4), random.choice(WORDS)
    c = random.randint(2, 99)
    return Asked(
        "text",
        f"every character of the text whose index is {start} plus a multiple of {step}, then the word {word} and the "
        f"number {c}, all in one text",
        f"text[{start}::{step}] + '{word}{c}'",
        lambda text: text[start::step] + f"{word}{c}",
        _text,
    )


def _replaced(random: Random) -> Asked:
    old, new, word = random.choice("aeilnor"), random.choice("bqvxyz"), random.choice(WORDS)
    c = random.randint(2, 99)
    return Asked(
        "text",
        f"the text with {new} in place of each {old}, behind the word {word} and the number {c}, all in one text",
        f"'{word}{c}' + text.replace('{old}', '{new}')",
        lambda text: f"{word}{c}" + text.replace(old, new),
        _text,
    )


def _rule(random: Random) -> Asked:
    (a, b), (one, other) = random.sample([3, 4, 5, 7, 9, 11], 2), random.sample(WORDS, 2)
    c = random.randint(2, 999)
    return Asked(
        "n",
        f"'{one}' if n is divisible by {a}, otherwise '{other}' if n is divisible by {b}, otherwise n plus {c}",
        f"'{one}' if n % {a} == 0 else '{other}' if n % {b} == 0 else n + {c}",
        lambda n: one if n % a == 0 else other if n % b == 0 else n + c,
        lambda random: random.choice((a, b, 1)) * random.randint(1, 99),
    )


def _lengths(random: Random) -> Asked:
    k, c = random.randint(3, 4), random.randint(2, 999)
    return Asked(
        "words",
        f"a dict that has each word of the list with more than {k} letters, with its length plus {c}",
        f"{{word: len(word) + {c} for word in words if len(word) > {k}}}",
        lambda words: {word: len(word) + c for word in words if len(word) > k},
        lambda random: random.sample(WORDS, random.randint(3, 8)),
    )


def _numbers(random: Random) -> list[int]:
    return [random.randint(0, 99) for _ in range(random.randint(3, 8))]


def _text(random: Random) -> str:
    return " ".join(random.sample(WORDS, random.randint(2, 4)))


TEMPLATES: Final = (_linear, _remainder, _clipped, _between, _every, _replaced, _rule, _lengths)
