"""One validation for own and foreign rollouts: in-process swarms and strangers' messages get the same verdict."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes import Exact, Sayings, rollout
from fakes import question as saying
from local_examiner import LocalExaminer
from msgspec.structs import replace

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.rewards.scorer import Scorer
from shoal.rollout import Completion, Question, QuestionId, Rollout
from shoal.sandbox.examiner import Candidate
from shoal.tasks import Tasks
from shoal.tasks.draw import InvalidRollout, validate

KEY = ("reef", "c0ffee", 7)
TASKS = Tasks(TasksConfig(sources=[TaskSpec(name="test_verifier_tasks:Echo")]))
QUESTIONS = TASKS.draw(64, *KEY)
GOOD = Rollout(QUESTIONS[0].id, QUESTIONS[0].hash, (Completion.of("1"),), "bob", 7, 0)


def held_out() -> Rollout:
    """The question before the one that was drawn, which is held out."""
    slot, question = next((s, q) for s, q in enumerate(QUESTIONS) if q.id.index > 0)
    kept = TASKS.question(replace(question.id, index=0))
    return replace(GOOD, question=kept.id, question_hash=kept.hash, slot=slot)


ROLLOUTS: dict[str, Callable[[], Rollout]] = {
    "": lambda: GOOD,
    "completions": lambda: replace(GOOD, completions=()),
    "task": lambda: replace(GOOD, question=QuestionId("chain_sum", "0", "0", 1, 0)),
    "question": lambda: replace(GOOD, question_hash="another"),
    "held out": held_out,
}


@pytest.mark.parametrize("reason", ROLLOUTS)
def test_a_swarm_in_one_process_and_an_examiner_of_strangers_give_the_same_verdict(reason: str) -> None:
    sent = ROLLOUTS[reason]()
    scorer = Scorer(TASKS, Exact("1"))
    texts = tuple(completion.text for completion in sent.completions)
    candidate = Candidate(sent.question, sent.question_hash, KEY, sent.slot, texts)
    verdict = LocalExaminer(TASKS, Exact("1")).examine(candidate, 1.0)
    assert verdict.reason == reason
    assert [one.rewards for one in scorer.score([sent])] == ([] if reason else [verdict.rewards])
    assert scorer.refused == bool(reason)


def test_the_draw_is_checked_where_a_stranger_claims_one() -> None:
    given = (TASKS, GOOD.question, GOOD.question_hash, 1)
    assert validate(*given) == validate(*given, (KEY, 0)) == QUESTIONS[0]
    for key, slot in ((("reef", "c0ffee", 8), 0), (KEY, 1)):
        with pytest.raises(InvalidRollout, match="seed"):
            validate(*given, (key, slot))


def test_a_hash_is_optional_and_a_task_that_raises_is_refused() -> None:
    asked = saying(1)
    assert validate(Sayings(), asked.id, None, 1) == asked

    class Broken(Sayings):
        def question(self, id: QuestionId) -> Question:
            raise ZeroDivisionError

    scorer = Scorer(Broken(), Exact())
    assert scorer.score([rollout(asked)]) == []
    assert scorer.refused == 1
