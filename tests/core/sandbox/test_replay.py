"""Conversations held again: what a receiver refuses, and what an environment at fault costs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from local_examiner import LocalExaminer
from talking import conversation, talked

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import UserError
from shoal.rewards.scorer import Scorer
from shoal.rollout import Completion, Question
from shoal.sandbox.examiner import Candidate, Examiner
from shoal.sandbox.replay import refuse_conversations
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks

FAULTS = ("", "raise", "hang", "megabyte", "random", "number")
CONFIG = TasksConfig(
    sources=[TaskSpec(name="talking:Echo", parameters={"fault": fault}, score_timeout=0.3) for fault in FAULTS],
    partial_credit=True,
)
TASKS = Tasks(CONFIG)
KEY = ("reef", "c0ffee", 7)
DRAWN = TASKS.draw(64, *KEY)


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    with Verifier(CONFIG) as verifier:
        yield verifier


@pytest.fixture(scope="module", params=["process", "local"])
def examiner(request: pytest.FixtureRequest) -> Iterator[Examiner | LocalExaminer]:
    if request.param == "local":
        with Verifier(CONFIG) as verifier:
            yield LocalExaminer(TASKS, verifier)
    else:
        with Examiner(CONFIG) as examiner:
            yield examiner


def about(fault: str = "") -> tuple[Question, int]:
    """A question with its slot; `fault`: what its environment does when it hears "bad"."""
    task = TASKS.tasks[FAULTS.index(fault)]
    return next((q, slot) for slot, q in enumerate(DRAWN) if q.id.config == task.config)


def candidate(*completions: Completion, fault: str = "") -> Candidate:
    question, slot = about(fault)
    cut = tuple(c.finish_reason == "length" for c in completions)
    return Candidate(question.id, question.hash, KEY, slot, tuple(c.answer for c in completions), cut)


def test_the_receiver_scores_and_hears_for_itself(examiner: Examiner | LocalExaminer) -> None:
    verdict = examiner.examine(
        candidate(
            conversation("good", "end"),
            conversation("end"),
            conversation("good", "good", "no"),
            conversation("good", cut=True),
        ),
        1.0,
    )
    assert verdict.reason == ""
    assert verdict.rewards == pytest.approx((1 / 3, 0, 2 / 3, 1 / 3))
    assert verdict.observations == (
        ("word 1", "word 2"),
        ("word 1",),
        ("word 1", "word 2", "word 3"),
        ("word 1",),
    )


@pytest.mark.parametrize(
    "other",
    [
        conversation("good", "end", "good"),  # it goes on after its end
        conversation("good", "good"),  # it ends before
        conversation("a", "b", "c", "d"),  # more turns than there are
        conversation("a", "b", "c", "d", cut=True),
        Completion.of("good"),
    ],
)
def test_a_conversation_that_goes_otherwise_here(examiner: Examiner | LocalExaminer, other: Completion) -> None:
    assert examiner.examine(candidate(conversation("end"), other), 1.0).reason == "replay"


@pytest.mark.parametrize("fault", ["raise", "megabyte", "number"])
def test_an_environment_at_fault(examiner: Examiner | LocalExaminer, fault: str) -> None:
    asked = candidate(conversation("bad", "end"), conversation("end"), fault=fault)
    assert examiner.examine(asked, 1.0).reason == "environment"
    assert examiner.examine(candidate(conversation("good", "end"), fault=fault), 1.0).reason == ""


def test_an_environment_that_hangs_takes_no_longer_than_allowed() -> None:
    with Examiner(CONFIG) as examiner:
        assert examiner.examine(candidate(conversation("bad", "end"), fault="hang"), 0.3).reason == "slow task"
        assert examiner.examine(candidate(conversation("end"), fault="hang"), 1.0).reason == ""


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("raise", "environment"), ("hang", "timeout"), ("megabyte", "observation"), ("number", "environment")],
)
def test_what_a_fault_costs(verifier: Verifier, fault: str, reason: str) -> None:
    """That rollout, counted by its reason, and nothing else."""
    verifier.failures.clear()
    scorer = Scorer(TASKS, verifier)
    failing = talked(about(fault)[0], conversation("bad", "end"), conversation("end"))
    fine = talked(about()[0], conversation("good", "end"), conversation("end"))
    [scored] = scorer.score([failing, fine])
    assert scored.rollout.question == fine.question
    assert scored.rewards == pytest.approx((1 / 3, 0))
    assert [c.observations for c in scored.rollout.completions] == [("word 1", "word 2"), ("word 1",)]
    assert (scorer.refused, verifier.failures) == (1, {reason: 1})


def test_an_environment_that_is_not_deterministic(verifier: Verifier) -> None:
    """Found by holding an own conversation again."""
    verifier.failures.clear()
    question = about("random")[0]
    [held] = verifier.replay([(question.id, ("bad",))], scored=False)
    own = talked(question, conversation("bad", "end", observations=held.observations))
    scorer = Scorer(TASKS, verifier)
    assert scorer.score([own]) == []
    assert (scorer.refused, verifier.failures) == (1, {"not deterministic": 1})


def test_conversations_that_go_otherwise_are_counted(verifier: Verifier) -> None:
    verifier.failures.clear()
    scorer = Scorer(TASKS, verifier)
    assert scorer.score([talked(about()[0], conversation("good", "good"))]) == []
    assert verifier.failures == {"replay": 1}


def test_a_conversation_is_not_scored_before_its_end(verifier: Verifier) -> None:
    verifier.failures.clear()
    [result] = verifier.replay([(about("raise")[0].id, ("bad",))], scored=False)
    assert result.failure == "environment"
    assert not verifier.failures  # it fails again, and is counted, when it is scored


def test_whoever_holds_no_conversations_says_so() -> None:
    with pytest.raises(UserError, match="task 'echo' answers back, which an endpoint cannot do"):
        refuse_conversations([about()[0]], "an endpoint")


class Plain:
    """A verifier without environments."""

    trouble = ""

    def score(self, items: object) -> list[list[float]]:
        return []


def test_a_scorer_without_environments_says_so() -> None:
    with pytest.raises(UserError, match="answers back"):
        Scorer(TASKS, Plain()).score([talked(about()[0], conversation("end"))])
