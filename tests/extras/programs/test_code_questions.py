"""The task `programs`, and how verdicts on programs become rewards."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
from limits import within

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import UserError
from shoal.rollout import Question
from shoal.sandbox.examiner import Candidate, Examiner
from shoal.sandbox.verifier import Verifier, filled
from shoal.tasks import Tasks
from shoal_extras.programs.questions import TESTS, Programs

pytest.importorskip("pydantic_monty")
CONFIG = TasksConfig(sources=[TaskSpec(name="programs")])
KEY = ("reef", "c0ffee", 7)


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    with Verifier(CONFIG) as verifier:
        yield verifier


def interpreters() -> set[psutil.Process]:
    """Those that this process's workers run."""
    return {one for one in psutil.Process().children(recursive=True) if "monty" in one.name()}


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def right(question: Question) -> str:
    return Programs().answer(question.id)


def test_a_question_is_a_function_of_its_identity() -> None:
    questions = [Programs().question(seed, 0) for seed in range(300)]
    assert questions == [Programs().question(seed, 0) for seed in range(300)]
    assert len({question.hash for question in questions}) > 290
    assert len({right(question) for question in questions}) > 290


def test_right_programs_are_right_and_others_questions_are_not(verifier: Verifier) -> None:
    questions = Tasks(CONFIG).draw(60, *KEY)
    answers = list(map(right, questions))
    nexts = answers[1:] + answers[:1]
    fenced = [f"Like this:\n```python\n{answer}\n```\nDone." for answer in answers]
    texts = zip(answers, fenced, nexts, strict=True)
    found = verifier.score([(question.id, group) for question, group in zip(questions, texts, strict=True)])
    assert found == [[1.0, 1.0, 0.0]] * len(questions)


def test_the_hidden_tests_catch_a_program_that_repeats_the_example(verifier: Verifier) -> None:
    for question in Tasks(CONFIG).draw(30, *KEY):
        made, (example, *hidden) = Programs()._made(question.id.seed, question.id.index)
        assert len(hidden) == TESTS
        cheat = f"def f(x):\n    return {made.function(example)!r}"
        assert verifier.score([(question.id, [cheat])]) == [[0.0]]


def test_partial_credit_grows_with_the_tests_that_pass() -> None:
    task = Programs()
    question = next(q for q in (task.question(seed, 0) for seed in range(99)) if "divisible" in q.text)
    answer = task.answer(question.id)
    half = answer.partition(" if ")[0] + " if True else 0"
    texts = ("9", "def f(n): pass", half, answer)
    nothing, little, some, all_of_it = (task.score(question.id, [text])[0] for text in texts)
    assert (nothing, all_of_it) == (0.0, 1.0)
    assert little == pytest.approx(0.1)
    assert little < some < 0.5


def test_no_verdict_is_counted_and_teaches_nothing(verifier: Verifier) -> None:
    question, other = Tasks(CONFIG).draw(2, "no verdict")
    before = verifier.failures["unsupported"]
    unsupported = "import numpy\n" + right(question)
    assert verifier.score([(question.id, [right(question), "def f(x): pass", unsupported])]) == [[1.0, 0.0, 0.5]]
    [[full, less]] = verifier.score([(question.id, [right(question), unsupported])])
    assert full == 1.0
    assert 1.0 - 1e-9 < less < 1.0  # nothing to learn from, and not counted as right
    assert verifier.score([(other.id, [unsupported])]) == [[0.0]]
    assert verifier.failures["unsupported"] == before + 2
    assert "unsupported: ModuleNotFoundError: No module named 'numpy'" in verifier.trouble
    assert verifier.counts[0] == 0  # no scorer failed


def test_what_is_no_program_is_counted(verifier: Verifier) -> None:
    [question] = Tasks(CONFIG).draw(1, "no program")
    texts = ["", "def f(", "The answer: 4 apples", "x" * 1_000_000, "# x\n" * 10_000, "while True: pass"]
    before = dict(verifier.failures)
    assert verifier.score([(question.id, texts)]) == [[0.0] * len(texts)]
    new = {reason: count - before.get(reason, 0) for reason, count in verifier.failures.items()}
    assert (new["no program"], new["too long"], new["steps"]) == (3, 2, 1)


def test_a_time_out_of_the_worker_is_no_verdict() -> None:
    before = interpreters()
    with Verifier(within(0.2, CONFIG)) as verifier:
        [question] = Tasks(CONFIG).draw(1, "slow")
        group = [right(question), "sum(range(10**13))", "def f(x): pass"]
        assert verifier.score([(question.id, group)]) == [[1.0, 0.5, 0.0]]
        assert verifier.failures == {"timeout": 1}
        assert len(interpreters() - before) <= 1  # the one that was busy ended with the worker
    wait_until(lambda: interpreters() <= before)


def test_strangers_programs_are_examined() -> None:
    [question, *_] = Tasks(CONFIG).draw(1, *KEY)
    unsupported = ("import numpy", "import ctypes")

    def candidate(*texts: str) -> Candidate:
        return Candidate(question.id, question.hash, KEY, 0, texts)

    with Examiner(CONFIG) as examiner:
        assert examiner.examine(candidate(right(question), "1", *unsupported), 10.0).rewards == (1.0, 0.0, 0.5, 0.5)
        assert examiner.examine(candidate(*unsupported), 10.0).reason == "no verdict"
        verdict = examiner.examine(candidate(*(f"sum(range(10**13)) + {n}" for n in range(8))), 0.3)
        assert verdict.reason == "slow task"
        assert examiner.examine(candidate(right(question)), 10.0).rewards == (1.0,)


def test_the_mean_never_counts_as_right() -> None:
    assert filled([None, None]) == [0.0, 0.0]
    assert filled([0.25, None, 0.75]) == [0.25, 0.5, 0.75]
    assert filled([1.0, None])[1] < 1.0


def test_without_monty_the_task_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    with pytest.raises(UserError, match=r"pip install 'shoal\[code\]'"):
        Programs()
