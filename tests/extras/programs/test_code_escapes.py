"""Programs of strangers: what they try does nothing, ends, and has the same verdict whenever it is tried."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_files import small_functions
from escapes import CLOCKED, ENDED

from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal.tasks.task import Failed, NoVerdict
from shoal_extras.programs import monty
from shoal_extras.programs.monty import run
from shoal_extras.programs.problems import Problem, program_of

pytest.importorskip("pydantic_monty")
TESTS = ("assert f(3) == 4",)


def outcome(said: str) -> str:
    """What becomes of an answer to a question whose right answer adds 1."""
    try:
        return "right" if run(program_of(Problem("", TESTS), said), TESTS) else "wrong"
    except Failed as failed:
        known = isinstance(failed, NoVerdict) == (failed.reason in ("unsupported", "timeout", "crash"))
        return failed.reason if known else f"{failed.reason}, which is no verdict"


def test_the_corpus_does_nothing(tmp_path: Path) -> None:
    file = tmp_path / "made"
    found = {said: outcome(said.format(file=file) if "{file}" in said or "{{" in said else said) for said in ENDED}
    assert {said[:80]: (found[said], ENDED[said]) for said in ENDED if found[said] != ENDED[said]} == {}
    assert not file.exists()
    assert len(ENDED) >= 60
    assert outcome("def f(x):\n    return x + 1") == "right"


@pytest.mark.slow
def test_what_only_the_clock_ends_has_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monty, "SECONDS", 0.3)
    assert {outcome(said) for said in CLOCKED} == {"timeout"}
    assert outcome("def f(x):\n    return x + 1") == "right"


@pytest.mark.slow
def test_the_guarded_worker_survives_the_corpus(tmp_path: Path) -> None:
    file = tmp_path / "made"
    config = small_functions(tmp_path / "functions.jsonl", score_timeout=1.0)
    tasks = Tasks(config)
    [question] = tasks.draw(1, "key")
    texts = [text.format(file=file) if "{file}" in text or "{{" in text else text for text in (*ENDED, *CLOCKED)]
    with Verifier(config) as verifier:
        scores = verifier.score([(question.id, texts), (question.id, [tasks.answer(question.id)])])
        assert scores == [[0.0] * len(texts), [1.0]]
        assert verifier.failures["timeout"] == len(CLOCKED)
        assert verifier.failures["crash"] == verifier.failures["refused"] == 0
    assert not file.exists()


EQUAL = "class E:\n    def __eq__(self, other):\n        return True\ndef f(*values):\n    return E()\n"
LONG = "def f(x):\n    for i in range(10**6):\n        pass\n    return x + 1\n"


@pytest.mark.parametrize(
    "answer",
    [
        EQUAL + "names = [n for n in locals() if len(n) == 17]\nfor n in names:\n    exec(n + ' = lambda v: v')",
        EQUAL + "for n in eval('locals()'):\n    pass",
        "def f(x):\n    exec('for i in range(10**6):\\n    pass')\n    return x + 1",
        "def f(x):\n    eval('sum([i for i in range(10**6)])')\n    return x + 1",
        LONG + "def g():\n    try:\n        pass\n    except ValueError, TypeError:\n        pass",
        LONG + "z = " + "lambda:" * 150 + "1",
        LONG + "z = " + "{1:" * 180 + "1" + "}" * 180,
    ],
    ids=["lists names", "evaluates", "executes a loop", "evaluates a loop", "is not read", "is deep", "is nested"],
)
def test_what_reaches_the_names_in_use_or_is_not_counted_never_passes(answer: str) -> None:
    """Whoever knows the name of what checks plain data could replace it, and pass every test."""
    assert outcome(answer) in ("unsupported", "no program", "steps", "recursion", "denied", "error")
