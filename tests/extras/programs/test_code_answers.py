"""Which part of an answer is the program, and that it runs as in the harnesses of HumanEval and MBPP."""

from __future__ import annotations

import pytest

from shoal.tasks.task import NoVerdict
from shoal_extras.programs import problems
from shoal_extras.programs.monty import STEPS, load, steps_of
from shoal_extras.programs.problems import MBPP, passed_share, problem_of

ROW = {
    "text": "Write a function double(n) that returns twice n.",
    "code": "def double(n):\n    return 2 * n",
    "test_list": ["assert double(3) == 6", "assert double(0) == 0"],
}
RIGHT = "def double(n):\n    return 2 * n\n"
WRONG = "def double(n):\n    return n\n"
GUARD = f'{RIGHT}\n\nif __name__ == "__main__":\n    '


def block(code: str, language: str = "python") -> str:
    return f"```{language}\n{code.rstrip()}\n```"


ANSWERS = {
    "input under the guard": GUARD + "print(double(int(input())))",
    "arguments under the guard": "import sys\n\n" + GUARD + "print(double(int(sys.argv[1])))",
    "doctest under the guard": GUARD + "import doctest\n    doctest.testmod()",
    "a file under the guard": GUARD + "print(open('n.txt').read())",
    "an end under the guard": GUARD + "raise SystemExit",
    "a draft in a thought": f"<think>\n{block(WRONG)}\nno, twice.</think>\n{block(RIGHT)}",
    "a draft before": f"First:\n{block(WRONG)}\nBetter:\n{block(RIGHT)}",
    "a shell before": f"{block('pip install nothing', 'bash')}\n{block(RIGHT)}",
    "a call behind": f"{block(RIGHT)}\nUse it so:\n{block('print(double(3))')}",
    "output behind": f"{block(RIGHT)}\nIt prints:\n{block('6', 'text')}",
    "a block in a list": "1. The program:\n   ```python\n   def double(n):\n       return 2 * n\n   ```",
    "no language": block(RIGHT, ""),
    "no end": f"```python\n{RIGHT}",
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_program_in_an_answer(name: str) -> None:
    load()
    _, problem = problem_of(MBPP, ROW)
    assert passed_share(problem, ANSWERS[name]) == 1
    assert passed_share(problem, ANSWERS[name].replace("2 * n", "3 * n")) < 1


def test_an_answer_may_take_as_many_steps_as_the_right_one() -> None:
    load()
    slow = "def double(n):\n    for _ in range(200_000):\n        pass\n    return 2 * n"
    _, problem = problem_of(MBPP, {**ROW, "code": slow})
    assert steps_of(slow, problem.tests) > STEPS
    assert passed_share(problem, slow) == 1


def test_where_the_right_one_is_too_slow_for_now_there_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_slow(*given: object) -> int:
        raise NoVerdict("timeout")

    load()
    slow = "def double(n):\n    for _ in range(200_001):\n        pass\n    return 2 * n"
    _, problem = problem_of(MBPP, {**ROW, "code": slow})
    monkeypatch.setattr(problems, "steps_of", too_slow)
    with pytest.raises(NoVerdict, match="timeout"):
        passed_share(problem, slow)
