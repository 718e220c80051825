"""Rows of HumanEval's and MBPP's schema as questions, and what is no such row."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from data_files import data_config, write

from shoal.errors import UserError
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal.tasks.data.task import data_task
from shoal.tasks.task import Failed
from shoal_extras.programs.problems import HUMAN_EVAL, MBPP, Problem, passed_share, problem_of, program_of

pytest.importorskip("pydantic_monty")


def human_eval(n: int, **more: Any) -> dict[str, Any]:
    doc = f"Adds {n} to the root of x.\n    >>> add_{n}(4)\n    {n + 2}\n    "
    prompt = f'import math\n\n\ndef add_{n}(x):\n    """{doc}"""\n'
    near = f"    assert abs(candidate(9) - {n + 3}) < 1e-6\n"
    test = f"METADATA = {{}}\n\n\ndef check(candidate):\n    assert candidate(4) == {n} + 2\n{near}"
    solution = f"    return math.isqrt(x) + {n}\n"
    row = {"task_id": f"Own/{n}", "prompt": prompt, "entry_point": f"add_{n}", "canonical_solution": solution}
    return row | {"test": test} | more


def mbpp(n: int, **more: Any) -> dict[str, Any]:
    tests = [f"assert plus(1) == {n + 1}", f"assert plus(2) == {n + 2}", f"assert plus(Zero()) == {n}"]
    row = {"task_id": n, "text": f"Write a function to add {n}.", "code": f"def plus(x):\n    return x + {n}"}
    setup = "class Zero:\n    def __add__(self, other):\n        return other"
    return row | {"test_list": tests, "test_setup_code": setup, "challenge_test_list": []} | more


@pytest.mark.parametrize("make", [human_eval, mbpp])
def test_right_answers_are_right(make: Any, tmp_path: Path) -> None:
    config = data_config(write(tmp_path / "own.jsonl", [make(n) for n in range(20)]), examples=1)
    tasks = Tasks(config)
    [task] = tasks.tasks
    questions = tasks.draw(8, "key")
    assert len(questions[0].examples) == 2
    with Verifier(config) as verifier:
        answers = [task.answer(question.id) for question in questions]
        assert (
            verifier.score([(q.id, [a, "pass"]) for q, a in zip(questions, answers, strict=True)]) == [[1.0, 0.0]] * 8
        )


def test_a_question_of_mbpp_shows_one_test_and_hides_the_others() -> None:
    prompt, problem = problem_of(MBPP, mbpp(5, challenge_test_list=["assert plus(7) == 12"]))
    assert prompt.endswith("assert plus(1) == 6")
    assert "plus(2)" not in prompt
    assert len(problem.tests) == 4
    sanitized = mbpp(5, prompt="Write a function to add 5.", test_imports=["import math"])
    del sanitized["text"], sanitized["test_setup_code"]
    assert problem_of(MBPP, sanitized)[1].before == "import math"


def test_the_share_of_tests_is_what_passes() -> None:
    _, problem = problem_of(MBPP, mbpp(5))
    assert passed_share(problem, problem.solution) == 1.0
    assert passed_share(problem, "def plus(x):\n    return 6") == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "answer",
    [
        "class X:\n    def __sub__(self, other):\n        return 0\ndef root(x):\n    return X()",
        "class X:\n    def __rsub__(self, other):\n        return 0\ndef root(x):\n    return X()",
        "class X:\n    def __radd__(self, other):\n        return self\n    __add__ = lambda self, other: 0\n"
        "def root(x):\n    return X()",
        "class math:\n    def isclose(*values, **named):\n        return True\ndef root(x):\n    return 0",
        "def near(a, b):\n    return True\ndef root(x):\n    return 0",
        "def root(x):\n    global near, math, half, e\n    near = lambda a, b: True\n"
        "    half = lambda x: 0\n    e = 0\n"
        "    class math:\n        isclose = near\n    return 0",
        "def abs(x):\n    return 0\ndef root(x):\n    return 0",
    ],
    ids=[
        *("an operator", "a reflected one", "a sum", "a module", "what stands before it"),
        *("the same while a test runs", "a builtin of the helper"),
    ],
)
def test_an_answer_cannot_change_what_tests_calculate_with(answer: str) -> None:
    before = "import math\ndef half(x):\n    return x / 2\ndef near(a, b):\n    return abs(a - b) < 1e-9\n"
    tests = (
        "assert abs(root(9) - 3) < 1e-6",
        "assert math.isclose(root(4), 2)",
        "assert near(root(4), 2)",
        "assert root(16) == half(8)",
        "r = root(4)\nassert near(r, 2)",
        "e = 3\nr = root(9)\nassert r == e",
        "e = 3\ne -= root(9)\nassert abs(e) < 1e-6",
        "e = root(9)\ne -= 3\nassert abs(e) < 1e-6",
        "assert abs(sum([root(9), -3])) < 1e-6",
    )
    problem = Problem("def root(x):\n    return x ** 0.5", tests, before)
    assert passed_share(problem, problem.solution) == 1
    assert passed_share(problem, answer) == 0


IDENTITY = "def f(x):\n    return x"
VECTORS = """
class V:
    def __init__(self, n):
        self.n = n
    def __add__(self, v):
        return V(self.n + v.n)
UNIT = V(1) + V(1)
"""
DAYS = "assert (f(datetime.date(2020, 1, 1)) - datetime.date(2020, 1, 1)).days == 1"
HELPED = "def help(x, y):\n    return x + y\ndef f(x):\n    return help(x, 1)"
CLASS = """
class Two:
    count = 0
    def __add__(self, other):
        return other + 2
    def value(self):
        return 2
def value():
    return 2
def counter():
    count = 0
    def more():
        nonlocal count
        count += 1
        return count
    return more()
assert f(Two().value()) == value() and f(Two.count) == 0 and f(counter()) == 1 and f(Two()).count == 0
"""
CHECK = "def check(candidate):\n    import math\n    assert math.floor(candidate(2.5)) == 2\ncheck(f)"


@pytest.mark.parametrize(
    ("before", "solution", "test"),
    [
        ("Num = int | float", IDENTITY, "assert isinstance(f(3), int | float)"),
        ("LIMIT = 10", "LIMIT = 3\ndef f(x):\n    return min(x, LIMIT)", "assert f(9) == LIMIT"),
        ("def f(x):\n    pass", "def f(x):\n    return x + 1", "assert f(1) == 2"),
        ("def help(x):\n    return x", HELPED, "assert f(1) == 2"),
        (VECTORS, "def f(v):\n    return v.n if isinstance(v, V) else 0", "assert f(UNIT) == 2 and f(V(5)) == 5"),
        ("import datetime", "def f(day):\n    return day + datetime.timedelta(days=1)", DAYS),
        ("", IDENTITY, "total = 0\nfor n in range(3):\n    total += f(n)\nassert total == 3"),
        ("", IDENTITY, CHECK),
        ("", IDENTITY, CLASS),
        ("", IDENTITY, "assert max(map(f, [1, 2])) == 2 and sum(f(n) for n in (1, 2)) == 3"),
        ("", "class f:\n    def push(self, x):\n        return x", "assert f().push(3) == 3 and isinstance(f(), f)"),
    ],
)
def test_a_right_answer_passes_whatever_stands_before_it(before: str, solution: str, test: str) -> None:
    assert passed_share(Problem(solution, (test,), before), solution) == 1


def test_an_answer_goes_on_or_begins_anew() -> None:
    _, problem = problem_of(HUMAN_EVAL, human_eval(5))
    for said in (
        "    return math.isqrt(x) + 5",
        "return math.isqrt(x) + 5",
        "def add_5(x):\n  return int(x ** 0.5) + 5",
    ):
        assert passed_share(problem, said) == 1.0
    assert passed_share(problem, "```\nadd_5 = lambda x: math.isqrt(x) + 5\n```") == 1.0
    bare = Problem("", problem.tests, "def add_5(x):\n    # adds 5 to the root of x\n", "add_5")
    assert passed_share(bare, "def add_5(x):\n    return int(x ** 0.5) + 5") == 1.0
    with pytest.raises(Failed, match="no program"):
        program_of(problem, "``` \n \n```")


def test_an_answer_cannot_change_its_tests() -> None:
    _, problem = problem_of(HUMAN_EVAL, human_eval(5))
    answer = "def add_5(x):\n    return 7\ndef abs(x):\n    return 0\ndef check(f):\n    pass"
    assert passed_share(problem, answer) == 0.0


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (human_eval(1, test=""), "has no text in 'test'"),
        (human_eval(1, test=None), "has no text in 'test'"),
        (human_eval(1, test="def check(:"), "has a test that is no program"),
        (human_eval(1, entry_point="os.system"), "has no name of a function"),
        (human_eval(1, canonical_solution=5), "has no text in 'canonical_solution'"),
        (human_eval(1, canonical_solution="#" * 30_000), "more than 20,000 characters"),
        (mbpp(1, test_list=[]), "has no list of programs in 'test_list'"),
        (mbpp(1, test_list="assert True"), "has no list of programs in 'test_list'"),
        (mbpp(1, test_list=["assert ("]), "has a test that is no program"),
        (mbpp(1, test_list=["assert 1"] * 101), "has more than 100 tests"),
        (mbpp(1, test_setup_code=5), "has no program in 'test_setup_code'"),
        (mbpp(1, code=""), "has no text in 'code'"),
    ],
)
def test_a_row_that_is_no_problem_is_left_out_and_named(row: dict[str, Any], why: str, tmp_path: Path) -> None:
    make = human_eval if "prompt" in row else mbpp
    task = data_task(path=str(write(tmp_path / "own.jsonl", [row, *(make(n) for n in range(2, 20))])))
    assert task.info.skipped == 1
    assert why in task.info.first
    with pytest.raises(UserError, match=r"row 1 of bad.jsonl has"):
        data_task(path=str(write(tmp_path / "bad.jsonl", [row])), score="code")


def test_the_hash_covers_the_tests(tmp_path: Path) -> None:
    rows = [human_eval(n) for n in range(3)]
    one = data_task(path=str(write(tmp_path / "one.jsonl", rows)))
    other = data_task(path=str(write(tmp_path / "other.jsonl", [*rows[:2], human_eval(2, test=rows[0]["test"])])))
    assert one.version != other.version
    assert one.runs_programs


def test_packed_lines_are_read(tmp_path: Path) -> None:
    text = "".join(json.dumps(human_eval(n)) + "\n" for n in range(5)).encode()
    packed = tmp_path / "Own.jsonl.gz"
    packed.write_bytes(gzip.compress(text))
    assert (data_task(path=str(packed)).name, data_task(path=str(packed)).info.train) == ("Own", 5)
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(text)[:-20])
    with pytest.raises(UserError, match=r"cut.jsonl.gz cannot be read.*[Tt]runcated"):
        data_task(path=str(tmp_path / "cut.jsonl.gz"))
    (tmp_path / "no.jsonl.gz").write_bytes(text)
    assert data_task(path=str(tmp_path / "no.jsonl.gz")).info.train == 5  # its bytes say that it is not packed


def test_other_columns_are_no_programs(tmp_path: Path) -> None:
    rows = [{"prompt": "2 + 2 =", "answer": "4"}]
    with pytest.raises(UserError, match="has not the columns of HumanEval"):
        data_task(path=str(write(tmp_path / "sums.jsonl", rows)), score="code")
    plain = data_task(
        path=str(write(tmp_path / "own.jsonl", [human_eval(1)])), answer="canonical_solution", score="exact"
    )
    assert not plain.runs_programs
