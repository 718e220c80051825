"""Runs a stranger's program with its tests: in Monty, and if that does not support it, in WASI where it is installed.

    load()                                                                          # "monty 1.4.0+1"
    run("import heapq\\ndef f(x): return heapq.nsmallest(1, x)", ["assert f([2, 1]) == [1]"])
    # Run(passed=1) with WASI; without it NoVerdict("unsupported")

A node with WASI can judge some programs that a node without it cannot; on all others they agree. A question is the same
on both.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.tasks.task import NoVerdict
from shoal_extras.programs import monty, wasi
from shoal_extras.programs.monty import Run
from shoal_extras.programs.wasi_module import prepared


def load() -> str:
    """The version of the rules, which is part of a question's identity. It gets ready what cannot be imported or
    written within the guard. Raises `UserError` without Monty."""
    version = monty.load()
    prepared()
    return version


def run(program: str, tests: Sequence[str], setup: str = "") -> Run:
    """How many of `tests` the program passes. Raises `Failed` for one that does not even run, or takes too much, and
    `NoVerdict` where nobody can tell. `tests` may be a stranger's, too (`propose`). `setup`: what tests
    call as it stands there, whatever the program makes of it."""
    try:
        return monty.run(program, tests, setup)
    except NoVerdict as unknown:
        compiled = prepared() if unknown.reason == "unsupported" else None
        if compiled is None:
            raise
        in_monty = unknown.detail
    try:
        return wasi.run(compiled, program, tests, setup)
    except NoVerdict as unknown:
        raise NoVerdict(unknown.reason, f"{in_monty}; in WASI: {unknown.detail or unknown.reason}") from None
