"""Programming problems as data sets have them: HumanEval's columns and MBPP's.

    prompt, problem = problem_of(HUMAN_EVAL, row)
    passed_share(problem, "def add(a, b): return a + b")

Whatever verifies an answer is a `Problem`. A row's right answer is kept as the problem's text, so that the content hash
of the data covers the tests.
"""

import ast
import re
import textwrap
from collections.abc import Collection, Mapping
from functools import lru_cache, partial
from typing import Any, Final

import msgspec

from shoal.answers.place import spoken
from shoal.tasks.data.rows import Asked, Form
from shoal.tasks.task import Failed
from shoal_extras.programs.monty import MOST_CHARACTERS, STEPS, load, run, steps_of
from shoal_extras.programs.rewrite import bound

HUMAN_EVAL: Final = ("prompt", "canonical_solution", "entry_point", "test")
MBPP: Final = ("code", "test_list")
"""Columns by which a schema is known. MBPP's `text` is `prompt` in its sanitised version."""
LANGUAGES: Final = ("", "python", "python3", "py", "py3")
"""Marks of a block of Python."""
TIMES: Final = 10
"""An answer may take this many times the steps of the right one, where that is more than usual."""
MOST_STEPS: Final = 5_000_000
TESTS: Final = 100
"""Of a problem of MBPP's, at most."""


class Problem(msgspec.Struct, frozen=True):
    """What verifies an answer."""

    solution: str
    """A right program."""
    tests: tuple[str, ...]
    """Programs that raise where the answer is wrong."""
    before: str = ""
    """What stands before the answer."""
    entry: str = ""
    """The function whose beginning is at the end of `before`: an answer may go on there, or write it again."""


class ProgramScore:
    """Scores programs by the share of a row's tests that they pass: `score = "code"` of a data set."""

    columns = f"of HumanEval ({', '.join(HUMAN_EVAL)}) or of MBPP (text, {', '.join(MBPP)})"
    runs_programs = True
    kind = "code"

    def form(self, columns: Collection[str]) -> Form | None:
        if set(HUMAN_EVAL) <= set(columns):
            return Form(
                "HumanEval's columns", "prompt", "canonical_solution", partial(self._read, HUMAN_EVAL), self.kind
            )
        if set(MBPP) <= set(columns):
            asked = "text" if "text" in columns else "prompt"
            return Form("MBPP's columns", asked, "code", partial(self._read, MBPP), self.kind)
        return None

    def load(self) -> str:
        return load()

    def answer(self, right: str) -> str:
        return _decoder.decode(right).solution

    def score(self, right: str, said: str) -> float:
        return passed_share(_decoder.decode(right), said)

    def _read(self, schema: tuple[str, ...], row: Mapping[str, Any]) -> Asked:
        prompt, problem = problem_of(schema, row)
        return Asked(prompt, msgspec.json.encode(problem).decode())


def problem_of(schema: tuple[str, ...], row: Mapping[str, Any]) -> tuple[str, Problem]:
    """What is asked, and what verifies it. Raises `ValueError` for a row without a problem."""
    if schema == HUMAN_EVAL:
        prompt, solution, entry, test = (_text(row, name) for name in HUMAN_EVAL)
        if not entry.isidentifier():
            raise ValueError("has no name of a function in 'entry_point'")
        asked = f"Complete this function. Answer with the whole function in Python.\n\n{prompt.strip()}"
        problem = Problem(prompt + solution, (f"{test}\ncheck({entry})",), prompt, entry)
    else:
        said = _text(row, "text" if "text" in row else "prompt")
        tests = _texts(row, "test_list")
        setup = row.get("test_setup_code") or "\n".join(_texts(row, "test_imports") if row.get("test_imports") else ())
        if not isinstance(setup, str):
            raise ValueError("has no program in 'test_setup_code'")
        more = _texts(row, "challenge_test_list") if row.get("challenge_test_list") else ()
        asked = f"{said.strip()} Answer with a program in Python that passes this test:\n\n{tests[0].strip()}"
        problem = Problem(_text(row, "code"), (*tests, *more), setup)
    for test in problem.tests:
        if _parsed(test) is None:
            raise ValueError(f"has a test that is no program, {test[:40]!r}")
    if len(problem.before) + max(map(len, (problem.solution, *problem.tests))) > MOST_CHARACTERS:
        raise ValueError(f"has a program of more than {MOST_CHARACTERS:,} characters")
    return asked, problem


def passed_share(problem: Problem, said: str) -> float:
    """The share of the tests that an answer passes. Raises `Failed` or `NoVerdict`."""
    program, setup = program_of(problem, said), setup_of(problem)
    try:
        passed = run(program, problem.tests, setup)
    except Failed as failed:
        limit = _reference_limit(problem) if failed.reason == "steps" else 0
        if limit <= STEPS:
            raise
        passed = run(program, problem.tests, setup, limit)
    return passed / len(problem.tests)


@lru_cache(maxsize=256)
def _reference_limit(problem: Problem) -> int:
    """Steps that an answer may take where the right one needs many; 0 if that cannot be told."""
    try:
        solution = problem.solution if problem.entry else f"{problem.before}\n{problem.solution}"
        return min(MOST_STEPS, TIMES * steps_of(solution, problem.tests, setup_of(problem)))
    except Failed as failed:
        if failed.reason == "timeout":  # on a busy machine: a right answer must not be wrong, so there is no verdict
            raise
        return 0


def setup_of(problem: Problem) -> str:
    """What stands before the answer, but for what the answer defines."""
    before, solution = _parsed(_closed(problem.before)), _parsed(problem.solution)
    if before is None:
        return ""
    asked = {problem.entry} if problem.entry else bound(solution.body if solution else ())
    before.body = [one for one in before.body if not bound([one]) & asked]
    return ast.unparse(before)


def program_of(problem: Problem, said: str) -> str:
    """The program of an answer, behind what stands before it: its last block of Python that defines what is asked,
    otherwise its last block, or all of it. Raises `Failed` for an empty one."""
    asked = {problem.entry} if problem.entry else _defines(problem.solution)
    said = spoken(said)
    blocks = [(block[2].strip().lower(), textwrap.dedent(block[3])) for block in _BLOCK.finditer(said)]
    programs = [code for language, code in blocks if language in LANGUAGES] or [code for _, code in blocks]
    if not blocks and (said.startswith("[") or _parsed(said) is None):  # [BEGIN], [PYTHON], or prose
        programs = [one[0] for one in _BARE.finditer(said) if asked & _defines(one[0])]
    code = next((one for one in reversed(programs) if asked & _defines(one)), programs[-1] if programs else said)
    if not code.strip():
        raise Failed("no program")
    if not problem.entry or problem.entry in _defines(code):
        return f"{_closed(problem.before)}\n{code}"
    if not code[0].isspace():  # an answer loses the space around it, a block that of all its lines
        code = textwrap.indent(code, "    ") if blocks else f"    {code}"
    return f"{problem.before.rstrip()}\n{code}"


def _defines(code: str) -> set[str]:
    """The names that a program defines at its beginning of lines; it may be broken."""
    return {one or other for one, other in _DEFINED.findall(code)}


def _parsed(program: str) -> ast.Module | None:
    """The program; None for what is none."""
    try:
        return ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _closed(before: str) -> str:
    """`before` as a program of its own: the beginning of a function without even a description gets a body."""
    return f"{before.rstrip()}\n    pass" if _parsed(before) is None else before


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"has no text in {name!r}")
    return value


def _texts(row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = row.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(one, str) and one.strip() for one in value):
        raise ValueError(f"has no list of programs in {name!r}")
    if len(value) > TESTS:
        raise ValueError(f"has more than {TESTS} tests")
    return tuple(value)


_BLOCK: Final = re.compile(
    r"^[ \t]{0,32}(`{3,9}|~{3,9})([^\n`]{0,32})\n(.*?)(?:\n[ \t]{0,32}\1|\Z)", re.DOTALL | re.MULTILINE
)
"""What stands between marks of code; the last one may be missing."""
_BARE: Final = re.compile(
    r"^(?:(?:async )?def |class |import |from \S+ import |@).*(?:\n(?:$|[ \t)\]}#@].*|\w[\w.]*\s?[=(\[+].*"
    r"|(?:async|def|class|import|from|if|elif|else|for|while|with|try|except|finally|assert)\b.*))*",
    re.MULTILINE,
)
"""A program in a text without marks of code."""
_DEFINED: Final = re.compile(r"^(?:(?:async )?def|class)[ \t]+(\w+)|^(\w+)[ \t]*=", re.MULTILINE)
_decoder = msgspec.json.Decoder(Problem)  # made now: within the guard no annotation can be evaluated
