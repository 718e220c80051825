"""Guarded scoring: what a text or a scorer may try, through the real worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from limits import within

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import UserError
from shoal.rollout import QuestionId
from shoal.sandbox.verifier import Verifier, filled
from shoal.tasks import SUITES, Tasks

ECHO = TasksConfig(sources=[TaskSpec(name="test_verifier_tasks:Echo", score_timeout=0.5)])


def own(*names: str, **settings: object) -> TasksConfig:
    return TasksConfig(sources=[TaskSpec(name=name) for name in names], **settings)


def golds(tasks: Tasks, per_task: int) -> list[tuple[QuestionId, str]]:
    """Questions of each task with a right answer, in the form that its specification asks for."""
    pairs = []
    for label, task, spec in zip(tasks.labels, tasks.tasks, tasks.specs, strict=True):
        for index in range(per_task):
            identity = tasks.made(label, 11, index).id
            answer = task.answer(identity) or task.entry(11, index)["metadata"].get("example_answer", "")
            pairs.append((identity, answer if spec.answer == "whole" else f"So: <answer>{answer}</answer>"))
    return pairs


@pytest.fixture(scope="module")
def echo() -> Iterator[Verifier]:
    with Verifier(ECHO) as verifier:
        yield verifier


@pytest.fixture(scope="module")
def identity() -> QuestionId:
    return Tasks(ECHO).draw(1, "key")[0].id


EVALUATORS = (
    *("binary_matrix", "spiral_matrix", "string_insertion", "n_queens", "simple_integration", "number_sorting"),
    *("intermediate_integration", "puzzle24", "countdown", "decimal_arithmetic", "bitwise_arithmetic"),
    *("polynomial_equations", "complex_arithmetic", "fraction_simplification", "calendar_arithmetic"),
)
PAYLOADS = (
    "__import__('os').system('touch {file}')",
    "[__import__('os').system('touch {file}')]",
    "open('{file}', 'w').write('x')",
    "[open('{file}', 'w') for _ in '1']",
    "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'Popen'][0](['touch', '{file}'])",
    "exec(\"import os; os.system('touch {file}')\")",
    "Symbol('x').__class__.__init__.__globals__['__builtins__']['open']('{file}', 'w')",
    "(lambda: __import__('pathlib').Path('{file}').touch())()",
    "sqrt(__import__('os').system('touch {file}'))",
    "x.__class__(open('{file}', 'w'))",
    "f\"{{__import__('os').system('touch {file}')}}\"",
    "S(\"__import__('os').system('touch {file}')\")",
    "1 if __import__('os').system('touch {file}') else 2",
    "(x := __import__('os').system('touch {file}'))",
)
MONSTERS = (
    "[" * 90_000,
    "[" * 49_000 + "]" * 49_000,
    "(" * 150 + "1" + ")" * 150,
    "-" * 49_000 + "1",
    "1" + "+1" * 24_000,
    "9" * 99_000,
    "0x" + "f" * 40_000,
    "9**9**9**9",
    "(9**9)**9**9",
    "1e999999999",
    "1/1e-999999999",
    "1 << 10**9",
    "exp(exp(exp(exp(exp(9)))))",
    "x**x**x**x**x**999",
    "(x+1)**999",
    "\x00",
    "1\x002",
    "\ud800",
    "[\udfff, '\ud83d']",
    "🐟" * 20_000,
    "\u202e4\u202c",
    "٤٢",
    "nan",
    "-inf",
    "",
    " \n\t",
    "{[(" * 10_000,
    "'" * 9_999,
    "\\frac{" + "9" * 5_000 + "}{1}",
    "<answer>" * 10_000,
    "</answer>" * 10_000,
)


@pytest.mark.slow
def test_no_code_in_an_answer_runs(tmp_path: Path) -> None:
    file = tmp_path / "touched"
    config = own(*EVALUATORS, partial_credit=True)
    tasks = Tasks(config)
    texts = [payload.format(file=file) for payload in PAYLOADS]
    with Verifier(config) as verifier:
        scores = verifier.score([(task.question(3, 0).id, texts) for task in tasks.tasks])
        assert not file.exists()
        assert all(0.0 <= score <= 0.1 for group in scores for score in group)
        assert "timeout" not in verifier.failures
        # Only where the audit hook had to step in is anything refused: no scorer got that far.
        assert "refused" not in verifier.failures
        gold = golds(tasks, 2)
        assert verifier.score([(question, [answer]) for question, answer in gold]) == [[1.0]] * len(gold)


@pytest.mark.slow
def test_monstrous_answers_score_low_and_cost_their_neighbours_nothing() -> None:
    config = within(5.0, own(*EVALUATORS))
    tasks = Tasks(config)
    gold = golds(tasks, 1)
    with Verifier(config) as verifier:
        scores = verifier.score([(question, [*MONSTERS, answer]) for question, answer in gold])
    assert [group[-1] for group in scores] == [1.0] * len(gold)
    assert all(score == 0.0 for group in scores for score in group[:-1])
    assert verifier.failures["timeout"] == verifier.failures["crash"] == verifier.failures["refused"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("suite", sorted(SUITES.keys() - {"games"}))  # a conversation has no one right answer
@pytest.mark.parametrize("partial_credit", [False, True])
def test_right_answers_score_one_exactly(suite: str, partial_credit: bool) -> None:
    config = TasksConfig(suite=suite, partial_credit=partial_credit)
    gold = golds(Tasks(config), 30)
    with Verifier(config) as verifier:
        scores = verifier.score([(question, [answer]) for question, answer in gold])
        assert verifier.failures == Counter()
    wrong = [question for (question, _), score in zip(gold, scores, strict=True) if score != [1.0]]
    # propositional_logic has no gold; its example is a conclusion, but some are trivial by its own scorer.
    assert [question for question in wrong if question.task != "propositional_logic"] == []


@pytest.mark.slow
def test_right_answers_of_every_task_score_one_behind_the_guard() -> None:
    from reasoning_gym.factory import DATASETS

    from shoal.tasks.reasoning import HASHED, NOT_TASKS

    config = within(20.0, own(*sorted(DATASETS.keys() - NOT_TASKS - HASHED)))
    gold = golds(Tasks(config), 1)
    with Verifier(config) as verifier:
        scores = verifier.score([(question, [answer]) for question, answer in gold])
        assert verifier.failures.keys() <= {"error"}
    missed = {question.task for (question, _), [score] in zip(gold, scores, strict=True) if score < 1.0}
    assert missed <= {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}  # they name no gold


def test_not_a_number_is_not_right() -> None:
    config = own("complex_arithmetic", partial_credit=True)
    question = Tasks(config).draw(1, "k")[0]
    with Verifier(config) as verifier:
        assert verifier.score([(question.id, ["nan", "NaN + nani", "n a n", "nan i"])]) == [[0.0] * 4]


MISDEEDS = {
    "loop": "timeout",
    "sleep 9": "timeout",
    "raise oh": "error",
    "recurse": "error",
    "exit 0": "crash",
    "exit 7": "crash",
    "sys.exit": "crash",
    "allocate": "error",
    "system {file}": "refused",
    "write {file}": "refused",
    "swallow {file}": "refused",
    "connect 9": "refused",
    "eval 1+1": "refused",
}


@pytest.mark.slow
@pytest.mark.parametrize(("text", "reason"), MISDEEDS.items())
def test_a_misdeed_costs_one_zero(text: str, reason: str, identity: QuestionId, tmp_path: Path) -> None:
    file = tmp_path / "touched"
    texts = ["right 0", text.format(file=file), "wrong 1", "also right 0"]
    with Verifier(ECHO) as verifier:
        assert verifier.score([(identity, texts)]) == [[1.0, 0.0, 0.0, 1.0]]
        assert verifier.failures == {reason: 1}
    assert not file.exists()


def test_several_misdeeds_in_one_call(identity: QuestionId) -> None:
    texts = [f"{verb} 0 #{n}" for n, verb in enumerate(("exit", "loop", "raise")) for _ in range(2)]
    texts = [text for pair in zip(texts[::2], ["a 0", "b 0", "c 0"], strict=True) for text in pair]
    texts[0] = "exit 5"
    with Verifier(ECHO) as verifier:
        assert verifier.score([(identity, texts)]) == [[0.0, 1.0, 0.0, 1.0, 0.0, 1.0]]
        assert verifier.failures == {"crash": 1, "timeout": 1, "error": 1}


def test_prints_and_reads_do_not_disturb(echo: Verifier, identity: QuestionId) -> None:
    assert echo.score([(identity, ["print 0", "read 0", "0"])]) == [[1.0, 1.0, 1.0]]


def test_a_module_may_be_imported_late(echo: Verifier, identity: QuestionId) -> None:
    assert echo.score([(identity, ["import it"])]) == [[1.0]]


def test_scores_are_one_or_zero_unless_partial_credit_is_asked_for(identity: QuestionId) -> None:
    texts = ["0", "7", "beyond 2.5", "beyond -3", "beyond inf"]
    with Verifier(ECHO) as verifier:
        assert verifier.score([(identity, texts)]) == [[1.0, 0.0, 1.0, 0.0, 0.0]]
    with Verifier(ECHO.model_copy(update={"partial_credit": True})) as verifier:
        assert verifier.score([(identity, texts)]) == [[1.0, 0.25, 2.5, -3.0, 0.0]]


def test_a_score_that_is_nan_is_none_as_in_reward_functions(identity: QuestionId) -> None:
    with Verifier(ECHO) as verifier:
        assert verifier.score([(identity, ["0", "7", "nan"])]) == [[1.0, 0.0, 0.5]]
        assert "no reward (None or NaN) (1 of 3 answers have no verdict)" in verifier.trouble


@pytest.mark.parametrize(("credit", "said"), [(True, "they are learned from as they are"), (False, "all else gets 0")])
def test_scores_beyond_0_to_1_are_named_once_and_never_cut_in_silence(
    identity: QuestionId, credit: bool, said: str
) -> None:
    with Verifier(ECHO.model_copy(update={"partial_credit": credit})) as verifier:
        verifier.score([(identity, ["0", "7"])])
        assert verifier.trouble == ""
        verifier.score([(identity, ["beyond 2.5", "beyond -3"])])
        assert verifier.trouble.startswith("task 'echo' gives scores beyond 0 to 1, such as 2.5: ")
        assert said in verifier.trouble
        assert verifier.counts == (0, 4)


def test_who_has_no_verdict_gets_the_mean_and_never_full_marks() -> None:
    assert filled([0.0, None, 1.0]) == [0.0, 0.5, 1.0]
    assert filled([2.0, None, 4.0]) == [2.0, 3.0, 4.0]
    assert filled([1.0, None])[1] < 1
    assert filled([None]) == [0.0]


def test_too_long_scores_zero_unread(identity: QuestionId) -> None:
    with Verifier(ECHO) as verifier:
        assert verifier.score([(identity, ["0" * 1_000_000])]) == [[0.0]]
        assert verifier.failures == {"too long": 1}


def test_each_text_is_scored_once(identity: QuestionId) -> None:
    with Verifier(ECHO) as verifier:
        assert verifier.score([(identity, ["raise a"] * 3), (identity, ["raise a", "0"])]) == [[0.0] * 3, [0.0, 1.0]]
        assert verifier.score([(identity, ["raise a"])]) == [[0.0]]
        assert verifier.failures == {"error": 1}


def test_order_is_kept_and_nothing_is_fine(echo: Verifier) -> None:
    questions = Tasks(ECHO).draw(20, "order")
    answers = [[str(question.id.index), "x", str(question.id.index)] for question in questions]
    assert echo.score([(q.id, a) for q, a in zip(questions, answers, strict=True)]) == [[1.0, 0.0, 1.0]] * 20
    assert echo.score([]) == []
    assert echo.score([(questions[0].id, [])]) == [[]]


def test_an_interrupted_call_leaves_nothing_behind(
    echo: Verifier, identity: QuestionId, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    assert echo.score([(identity, ["before 0"])]) == [[1.0]]
    with monkeypatch.context() as patch:
        patch.setattr("shoal.sandbox.process.GuardedProcess.receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            echo.score([(identity, ["wrong", "wrong too"])])
    assert echo.score([(identity, ["after 0", "and 0"])]) == [[1.0, 1.0]]


def test_unknown_question(identity: QuestionId) -> None:
    with Verifier(ECHO) as verifier:
        assert verifier.score([(QuestionId("chain_sum", "0", "0", 1, 0), ["4"]), (identity, ["0"])]) == [[0.0], [1.0]]
        assert verifier.failures == {"unknown": 1}


def test_the_first_failure_is_told_with_its_task_and_their_number(identity: QuestionId) -> None:
    with Verifier(ECHO) as verifier:
        assert verifier.score([(identity, ["0", "wrong"])]) == [[1.0, 0.0]]
        assert verifier.trouble == ""
        verifier.score([(identity, ["raise it is\x1b[2J broken", "raise again", "allocate", "x" * 100_001])])
        assert verifier.trouble == "task 'echo': RuntimeError: it is?[2J broken (3 of 5 answers failed)"
        verifier.score([(identity, ["exit 1"])])
        assert verifier.trouble.endswith("(4 of 6 answers failed)")


def test_an_answer_that_reasoning_gym_cannot_read_is_no_trouble() -> None:
    config = own("prime_factorization")
    with Verifier(config) as verifier:
        assert verifier.score([(Tasks(config).draw(1, "key")[0].id, ["not a number"])]) == [[0.0]]
        assert (verifier.failures, verifier.trouble) == ({"error": 1}, "")


def test_starting_takes_no_completion_s_time(identity: QuestionId) -> None:
    with Verifier(within(0.05, ECHO)) as verifier:
        assert verifier.score([(identity, ["0"])]) == [[1.0]]


@pytest.mark.slow
def test_making_a_question_takes_no_completion_s_time() -> None:
    config = TasksConfig(sources=[TaskSpec(name="test_verifier_tasks:Slow", score_timeout=0.2)])
    question = Tasks(config).draw(1, "key")[0].id
    with Verifier(config) as verifier:
        assert verifier.score([(question, [str(question.index), "wrong"])]) == [[1.0, 0.0]]
        assert verifier.failures == Counter()


def test_a_question_that_is_never_made_is_no_answer_s_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.sandbox.verifier.QUESTION_TIMEOUT", 0.2)
    config = TasksConfig(sources=[TaskSpec(name="test_verifier_tasks:Slow"), *ECHO.sources])
    slow, echo = (task.question(3, 0).id for task in Tasks(config).tasks)
    with Verifier(config) as verifier:
        assert verifier.score([(slow, ["0", "1"]), (echo, ["0"])]) == [[0.0, 0.0], [1.0]]
        assert verifier.failures == {"slow question": 2}


def test_a_worker_that_cannot_start_is_the_user_s_to_mend(identity: QuestionId) -> None:
    with Verifier(own("no_such_module:Task")) as verifier, pytest.raises(UserError, match="no_such_module"):
        verifier.score([(identity, ["0"])])
    with Verifier(own("test_verifier_tasks:Broken")) as verifier, pytest.raises(UserError, match="did not start in 3"):
        verifier.score([(identity, ["0"])])


def test_a_verifier_that_was_started_early_scores_and_says_what_it_lacks(identity: QuestionId) -> None:
    with Verifier(ECHO) as verifier:
        verifier.start()
        assert verifier.score([(identity, ["0"])]) == [[1.0]]
    with Verifier(own("no_such_module:Task")) as verifier:
        verifier.start()
        with pytest.raises(UserError, match="no_such_module"):
            verifier.score([(identity, ["0"])])


def test_closing_ends_the_worker_and_scoring_starts_another(identity: QuestionId) -> None:
    verifier = Verifier(ECHO)
    verifier.close()
    assert verifier.score([(identity, ["0"])]) == [[1.0]]
    verifier.close()
    assert verifier.score([(identity, ["right 0"])]) == [[1.0]]
    verifier.close()


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(text=st.text(st.characters(codec=None, categories=None), max_size=60))
def test_any_text_scores_within_bounds(all_tasks: tuple[Verifier, list[QuestionId]], text: str) -> None:
    verifier, questions = all_tasks
    for [score] in verifier.score([(question, [text]) for question in questions]):
        assert 0.0 <= score <= 1.0
    assert verifier.failures.keys() <= {"error"}


@pytest.fixture(scope="module")
def all_tasks() -> Iterator[tuple[Verifier, list[QuestionId]]]:
    config = within(10.0, own(*EVALUATORS, "propositional_logic", "arc_1d", "bf", "gcd", partial_credit=True))
    with Verifier(config) as verifier:
        yield verifier, [task.question(5, 0).id for task in Tasks(config).tasks]
