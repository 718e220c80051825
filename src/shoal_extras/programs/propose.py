"""The task `propose`: set a programming problem with tests, which others solve in the stage `solve`.

    task = Propose()
    question = task.question(seed=7, index=0)      # ... The first test calls f(17).
    problem = "def f(n):\\n    return n + 3\\nassert f(17) == 20\\nassert f(2) == 5"
    task.score(question.id, [problem])                                      # [1.0]: it is a problem
    task.solved(question.id, problem, "def f(n):\\n    return 3 + n")        # 1.0: it is solved

A problem is written as a function f in Python, then its tests, a line each. Its own program has to pass its tests in
this node's interpreter, and no program that always returns the same may pass them. Its right answers are small
functions, of which two tests say which one it is.
"""

import ast
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from shoal.rollout import Message, Question, QuestionId, hash_of
from shoal.tasks.task import Failed, NoVerdict
from shoal_extras.programs.monty import load, run
from shoal_extras.programs.problems import Problem, program_of

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


LONGEST: Final = 200
"""Characters of a test."""
GIVEN: Final = 3
"""Tests of the problems that this task sets itself."""


class Propose:
    """Problems with tests."""

    name = PROPOSE
    version = "1"
    runs_programs = True

    def __init__(self, highest: int = HIGHEST) -> None:
        """`highest`: of the numbers with which first tests call. Raises `UserError` without Monty."""
        self.highest = highest
        self._held: tuple[QuestionId, str] | None = None
        """The last problem that held: all solutions of a group are to one."""
        self.config = hash_of({"rules": load(), "tests": [MIN_TESTS, MAX_TESTS], "highest": highest})

    def question(self, seed: int, index: int) -> Question:
        text = (
            "Set a programming problem. Write a function f of a number in Python, and then "
            f"{MIN_TESTS} to {MAX_TESTS} tests, each a line such as assert f(2) == 5. "
            f"The first test calls f({self._first(seed, index)}). Answer with the function and its tests only."
        )
        return Question(QuestionId(self.name, self.version, self.config, seed, index), (Message("user", text),))

    def answer(self, question: QuestionId) -> str:
        random = Random(f"answer {question.seed} {question.index}")
        small, first = small_function(random), self._first(question.seed, question.index)
        return "\n".join([small.program, *small.tests(calls(random, first, GIVEN))])

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        return [float(self._is_problem(question, answer)) for answer in answers]

    def solved(self, question: QuestionId, problem: str, solution: str) -> float:
        if self._held != (question, problem):
            self._check(question, problem)
            self._held = question, problem
        tests = tests_of(problem)
        return float(run(program_of(Problem("", tuple(tests)), solution), tests) == len(tests))

    def _check(self, question: QuestionId, problem: str) -> None:
        """Raises `NoVerdict` for a text that is no problem: nobody who solves it is to blame."""
        try:
            holds = self._is_problem(question, problem)
        except NoVerdict:
            raise
        except Failed as failed:
            raise NoVerdict("no problem", failed.detail) from None
        if not holds:
            raise NoVerdict("no problem")

    def _is_problem(self, question: QuestionId, problem: str) -> bool:
        """Whether the problem's own program passes its tests. The first test calls f with the given number, no two
        tests call f alike, and they do not all want the same value. Raises `Failed` and `NoVerdict`."""
        tests = tests_of(problem)
        if not MIN_TESTS <= len(tests) <= MAX_TESTS:
            raise Failed("no tests")
        called, wanted = zip(*map(_pair, tests), strict=True)
        again = any(value in called[:place] for place, value in enumerate(called))
        if called[0] != self._first(question.seed, question.index) or again or all(v == wanted[0] for v in wanted):
            return False
        return run(own_program(problem), tests) == len(tests)

    def _first(self, seed: int, index: int) -> int:
        return Random(f"{seed} {index}").randint(LOWEST, self.highest)


def _pair(test: str) -> tuple[Any, Any]:
    """What a test calls f with, and what it wants. Raises `Failed`: a test is `assert f(VALUE) == VALUE`."""
    try:
        if len(test) > LONGEST:
            raise Failed("no tests")
        [line] = ast.parse(test).body
        match line:
            case ast.Assert(ast.Compare(call, [ast.Eq()], [wanted]), None, end_col_offset=end):
                match call:
                    case ast.Call(func=ast.Name(id="f"), args=[value], keywords=[]) if end == len(test.encode()):
                        return ast.literal_eval(value), ast.literal_eval(wanted)  # and no comment
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        pass
    raise Failed("no tests")
