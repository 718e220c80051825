"""How verdicts on programs become rewards: of own answers, and of strangers'."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from data_files import small_functions
from limits import within

from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.rollout import Question
from shoal.sandbox.examiner import Candidate, Examiner
from shoal.sandbox.verifier import Verifier, filled
from shoal.tasks import Tasks
from shoal_extras.programs.monty import load

pytest.importorskip("pydantic_monty")
KEY = ("reef", "c0ffee", 7)


@pytest.fixture
def config(tmp_path: Path) -> TasksConfig:
    return small_functions(tmp_path / "functions.jsonl")


@pytest.fixture
def verifier(config: TasksConfig) -> Iterator[Verifier]:
    with Verifier(config) as verifier:
        yield verifier


def interpreters() -> set[psutil.Process]:
    """Those that this process's workers run."""
    return {one for one in psutil.Process().children(recursive=True) if "monty" in one.name()}


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def right(config: TasksConfig, question: Question) -> str:
    return Tasks(config).answer(question.id) or ""


def test_a_program_in_a_block_is_right_and_one_for_another_question_is_not(
    config: TasksConfig, verifier: Verifier
) -> None:
    questions = Tasks(config).draw(20, *KEY)
    answers = [right(config, question) for question in questions]
    fenced = [f"Like this:\n```python\n{answer}\n```\nDone." for answer in answers]
    others = ["def f(n):\n    return n"] * len(answers)
    texts = zip(answers, fenced, others, strict=True)
    found = verifier.score([(question.id, group) for question, group in zip(questions, texts, strict=True)])
    assert found == [[1.0, 1.0, 0.0]] * len(questions)


def test_no_verdict_is_counted_and_teaches_nothing(config: TasksConfig, verifier: Verifier) -> None:
    question, other = Tasks(config).draw(2, "no verdict")
    before = verifier.failures["unsupported"]
    unsupported = "import numpy\n" + right(config, question)
    assert verifier.score([(question.id, [right(config, question), "def f(x): pass", unsupported])]) == [
        [1.0, 0.0, 0.5]
    ]
    [[full, less]] = verifier.score([(question.id, [right(config, question), unsupported])])
    assert full == 1.0
    assert 1.0 - 1e-9 < less < 1.0  # nothing to learn from, and not counted as right
    assert verifier.score([(other.id, [unsupported])]) == [[0.0]]
    assert verifier.failures["unsupported"] == before + 2
    assert "unsupported: ModuleNotFoundError: No module named 'numpy'" in verifier.trouble
    assert verifier.counts[0] == 0  # no scorer failed


def test_what_is_no_program_is_counted(config: TasksConfig, verifier: Verifier) -> None:
    [question] = Tasks(config).draw(1, "no program")
    texts = ["", "def f(", "The answer: 4 apples", "x" * 1_000_000, "# x\n" * 10_000, "while True: pass"]
    before = dict(verifier.failures)
    assert verifier.score([(question.id, texts)]) == [[0.0] * len(texts)]
    new = {reason: count - before.get(reason, 0) for reason, count in verifier.failures.items()}
    assert (new["no program"], new["too long"], new["steps"]) == (3, 2, 1)


def test_a_time_out_of_the_worker_is_no_verdict(config: TasksConfig) -> None:
    before = interpreters()
    with Verifier(within(0.2, config)) as verifier:
        [question] = Tasks(config).draw(1, "slow")
        group = [right(config, question), "sum(range(10**13))", "def f(x): pass"]
        assert verifier.score([(question.id, group)]) == [[1.0, 0.5, 0.0]]
        assert verifier.failures == {"timeout": 1}
        assert len(interpreters() - before) <= 1  # the one that was busy ended with the worker
    wait_until(lambda: interpreters() <= before)


def test_strangers_programs_are_examined(config: TasksConfig) -> None:
    [question, *_] = Tasks(config).draw(1, *KEY)
    unsupported = ("import numpy", "import ctypes")

    def candidate(*texts: str) -> Candidate:
        return Candidate(question.id, question.hash, KEY, 0, texts)

    with Examiner(config) as examiner:
        assert examiner.examine(candidate(right(config, question), "1", *unsupported), 10.0).rewards == (
            1.0,
            0.0,
            0.5,
            0.5,
        )
        assert examiner.examine(candidate(*unsupported), 10.0).reason == "no verdict"
        verdict = examiner.examine(candidate(*(f"sum(range(10**13)) + {n}" for n in range(8))), 0.3)
        assert verdict.reason == "slow task"
        assert examiner.examine(candidate(right(config, question)), 10.0).rewards == (1.0,)


def test_the_mean_never_counts_as_right() -> None:
    assert filled([None, None]) == [0.0, 0.0]
    assert filled([0.25, None, 0.75]) == [0.25, 0.5, 0.75]
    assert filled([1.0, None])[1] < 1.0


def test_without_monty_the_task_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    with pytest.raises(UserError, match=r"pip install 'shoal\[code\]'"):
        load()
