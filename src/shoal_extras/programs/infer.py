"""The task `infer`: find a small function by two of its tests. The others are hidden.

    task = Infer()
    question = task.question(seed=7, index=0)      # Write a function f in Python that passes these tests ...
    task.score(question.id, [task.answer(question.id)])        # [1.0]

It is asked as the stage `solve` asks about problems that peers set, so it measures what that stage teaches.
"""

from collections.abc import Sequence
from random import Random

from shoal.rollout import Message, Question, QuestionId, hash_of
from shoal_extras.programs.monty import load
from shoal_extras.programs.problems import Problem, passed_share
from shoal_extras.programs.propose import HIGHEST, LOWEST, SmallFunction, asked, calls, small_function

SHOWN, TESTS = 2, 6


class Infer:
    """Small functions by their tests."""

    name = "infer"
    version = "1"
    runs_programs = True

    def __init__(self, highest: int = HIGHEST) -> None:
        """`highest`: of the numbers with which first tests call. Raises `UserError` without Monty."""
        self.highest = highest
        self.config = hash_of({"rules": load(), "tests": [SHOWN, TESTS], "highest": highest})

    def question(self, seed: int, index: int) -> Question:
        _, tests = self._made(seed, index)
        text = asked([f"> {test}" for test in tests[:SHOWN]])
        return Question(QuestionId(self.name, self.version, self.config, seed, index), (Message("user", text),))

    def answer(self, question: QuestionId) -> str:
        return self._made(question.seed, question.index)[0].program

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        problem = Problem("", tuple(self._made(question.seed, question.index)[1]))
        return [float(passed_share(problem, answer) == 1) for answer in answers]

    def _made(self, seed: int, index: int) -> tuple[SmallFunction, list[str]]:
        random = Random(f"{seed} {index}")
        small = small_function(random)
        return small, small.tests(calls(random, random.randint(LOWEST, self.highest), TESTS))
