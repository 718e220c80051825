"""Problems that peers set: what is one, and who has solved it. In the guarded worker, as strangers' problems are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from limits import within

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.rollout import Completion, Question, Rollout, Scored
from shoal.sandbox.examiner import Candidate, Examiner
from shoal.sandbox.verifier import ALMOST, Verifier
from shoal.selection.selection import FairSelection
from shoal.tasks import Tasks
from shoal.tasks.task import NoVerdict
from shoal_extras.programs.propose import Propose
from shoal_extras.stages.stages import Stages

pytest.importorskip("pydantic_monty")
CONFIG = TasksConfig(sources=[TaskSpec(name="propose")])
KEY = ("reef", "c0ffee", 2)
[ASKED] = Tasks(CONFIG).draw(1, *KEY)
FIRST = int(ASKED.text.split("calls f(")[1].split(")")[0])
PROGRAM = "def f(n):\n    return n * 2"
PROBLEM = f"{PROGRAM}\nassert f({FIRST}) == {FIRST * 2}\nassert f(3) == 6\nassert f(-1) == -2"
ONE = "def f(n):\n    return 1"
SOLUTION = "def f(n):\n    return n + n"


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    with Verifier(CONFIG) as verifier:
        yield verifier


@pytest.mark.parametrize(
    ("problem", "score"),
    {
        "a problem": (PROBLEM, 1.0),
        "its own program fails": (PROBLEM.replace("n * 2", "n * 3"), 0.0),
        "a wrong test": (PROBLEM.replace("== 6", "== 7"), 0.0),
        "another first test": (PROBLEM.replace(f"f({FIRST})", "f(4)").replace(str(FIRST * 2), "8"), 0.0),
        "one value is right": (f"def f(n):\n    return 5\nassert f({FIRST}) == 5\nassert f(3) == 5", 0.0),
        "one value is right, written otherwise": (
            f"def f(n):\n    return 1\nassert f({FIRST}) == 1\nassert f(3) == True",
            0.0,
        ),
        "a message": (f"{ONE}\nassert f({FIRST}) == 1, 1\nassert f(3) == 1, 2", 0.0),
        "a comment": (PROBLEM.replace("== 6", "== 6  # pay me"), 0.0),
        "the same call twice": (PROBLEM.replace("assert f(-1) == -2", "assert f(3) == 6"), 0.0),
        "one test": ("\n".join(PROBLEM.splitlines()[:3]), 0.0),
        "no program": ("\n".join(PROBLEM.splitlines()[2:]), 0.0),
        "a test that calls": (PROBLEM.replace("== 6", "== f(3)"), 0.0),
        "too many tests": (PROBLEM + "\nassert f(5) == 10" * 4, 0.0),
        "files": (PROBLEM.replace("return", "open('/etc/passwd'); return"), 0.0),
        "much memory": (PROBLEM.replace("return", "a = 'x' * 10**12; return"), 0.0),
        "much output": (PROBLEM.replace("return", "print('x' * 10**6); return"), 0.0),
        "no bottom": (PROBLEM.replace("return", "f(n); return"), 0.0),
        "much work in each test": (PROBLEM.replace("return", "sum([i for i in range(10**5)]); return"), 0.0),
        "a test that computes": (PROBLEM.replace("== 6", "== 3 * 10**6"), 0.0),
        "a test of a megabyte": (PROBLEM.replace("== 6", f"== {'6' * 2**20}"), 0.0),
        "no end": (PROBLEM.replace("return", "while True: pass\n    return"), 0.0),
        "a deep test": (PROBLEM.replace("== 6", f"== {'(' * 90}6{')' * 90}"), 1.0),
        "nothing": ("", 0.0),
    }.values(),
)
def test_a_problem_is_one_if_its_program_passes_its_tests_here(verifier: Verifier, problem: str, score: float) -> None:
    assert verifier.score([(ASKED.id, [problem])]) == [[score]]


def test_a_solution_passes_the_tests_that_are_hidden_too(verifier: Verifier) -> None:
    solutions = [
        "def f(n):\n    return n + n",
        f"def f(n):\n    return {{{FIRST}: {FIRST * 2}, 3: 6}}[n]",
        "no program",
    ]
    assert verifier.score([(ASKED.id, [(PROBLEM, solution) for solution in solutions])]) == [[1.0, 0.0, 0.0]]


def test_of_what_is_no_problem_nobody_can_say_who_solved_it(verifier: Verifier) -> None:
    wrong = PROBLEM.replace("n * 2", "n * 3")
    [values] = verifier.score(
        [(ASKED.id, [(wrong, "def f(n):\n    return n + n"), (PROBLEM, "def f(n):\n    return n + n")])]
    )
    assert values == [ALMOST, 1.0]


@pytest.mark.parametrize(
    "problem",
    [
        "\n".join(PROBLEM.splitlines()[:3]),
        "\n".join(PROBLEM.splitlines()[2:]),
        PROBLEM.replace("== 6", "== f(3)"),
        PROBLEM.replace("return", "f(n); return"),
    ],
    ids=["one test", "no program", "a test that calls", "no bottom"],
)
def test_a_solver_is_not_to_blame_for_a_text_that_is_no_problem(problem: str) -> None:
    with pytest.raises(NoVerdict):
        Propose().solved(ASKED.id, problem, SOLUTION)


def test_no_own_answer_passes_for_a_solution() -> None:
    """In parts it would be the problem with its solution."""
    candidate = Candidate(ASKED.id, ASKED.hash, KEY, 0, ((PROBLEM, SOLUTION), PROBLEM))
    with Examiner(CONFIG) as examiner:
        whole, plain = examiner.examine(candidate, 10.0).rewards
    assert (whole, plain) == (0.0, 1.0)


def proposed(*problems: str, rewards: tuple[float, ...]) -> Stages:
    stages = Stages(["solve"], "bob")
    rollout = Rollout(ASKED.id, ASKED.hash, tuple(map(Completion.of, problems)), "ada", 1)
    stages.remember(rollout, Scored(rollout, ASKED, rewards))
    return stages


def drawn(stages: Stages) -> Question:
    question = stages.draw(1, KEY)
    assert question is not None
    return question


def test_a_solver_sees_half_of_the_tests_of_a_problem_that_holds() -> None:
    question = drawn(proposed("assert f(1) == 1", PROBLEM, rewards=(0.0, 1.0)))
    assert question.id.index == 1
    assert question.text == (
        "Write a function f in Python that passes these tests and others like them:\n"
        f"> assert f({FIRST}) == {FIRST * 2}\n> assert f(3) == 6\n\nAnswer with the program only."
    )
    assert PROGRAM not in question.text


def test_problems_are_not_criticised_and_answers_are_not_solved() -> None:
    assert proposed("assert f(1) == 1", rewards=(0.0,)).draw(1, KEY) is None
    stages = proposed(PROBLEM, "other", rewards=(1.0, 0.0))
    stages.names = ["critique"]
    assert stages.draw(1, KEY) is None


def test_solutions_are_scored_as_peers_have_them(verifier: Verifier) -> None:
    stages = proposed(PROBLEM, rewards=(1.0,))
    settled = stages.settle(drawn(stages).id, ["def f(n):\n    return n * 2", "def f(n):\n    return n"])
    assert settled[0] == ASKED.id
    assert verifier.score([settled]) == [[1.0, 0.0]]


def of(program: str, wanted: Callable[[int], object]) -> str:
    """A problem with four tests, of which two are shown."""
    return "\n".join([program, *(f"assert f({n}) == {wanted(n)!r}" for n in (FIRST, 3, 14, 15))])


@pytest.mark.parametrize(
    ("problem", "solutions", "reward"),
    {
        "impossible": (
            of("def f(n):\n    return n * 7919 % 9973", lambda n: n * 7919 % 9973),
            ["n", "n * 2", f"{{{FIRST}: {FIRST * 7919 % 9973}, 3: {3 * 7919 % 9973}}}[n]"],
            0.0,
        ),
        "trivial": (of("def f(n):\n    return n", lambda n: n), ["n", "n + 0", "+n"], 1.0),
        "the program stands in the shown tests": (
            of("def f(n):\n    return ['return [1, n]', n]", lambda n: ["return [1, n]", n]),
            ["['return [1, n]', n]", "['return' + ' [1, n]', n]", "list(('return [1, n]', n))"],
            1.0,
        ),
    }.values(),
)
def test_a_problem_that_nobody_or_everybody_solves_teaches_nothing(
    verifier: Verifier, problem: str, solutions: list[str], reward: float
) -> None:
    """It is a problem, and costs its solvers a question. But no node learns from the answers, and none takes them."""
    assert verifier.score([(ASKED.id, [problem])]) == [[1.0]]
    stages = proposed(problem, rewards=(1.0,))
    question = drawn(stages)
    texts = [f"def f(n):\n    return {solution}" for solution in solutions]
    [rewards] = verifier.score([stages.settle(question.id, texts)])
    assert rewards == [reward] * 3
    rollout = Rollout(question.id, question.hash, tuple(map(Completion.of, texts)), "cyd", 1)
    assert FairSelection().choose_of_peers([Scored(rollout, question, tuple(rewards))], 4, seed=0) == []


def test_what_only_a_clock_ends_is_no_problem_and_nobody_is_asked_about_it() -> None:
    slow = PROBLEM.replace("return", "sum(range(10**13)); return")
    with Verifier(within(0.2, CONFIG)) as verifier:
        [rewards] = verifier.score([(ASKED.id, [slow, PROBLEM])])
    assert rewards == [ALMOST, 1.0]
    assert drawn(proposed(slow, PROBLEM, rewards=tuple(rewards))).id.index == 1
    assert proposed(slow, rewards=(rewards[0],)).draw(1, KEY) is None
