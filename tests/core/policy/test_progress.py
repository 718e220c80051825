"""Policies that tell how far they have come: what they tell, that it changes nothing, and that it can end them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fakes import question
from tiny import make_policy

from shoal.errors import Stopped
from shoal.protocols import ReportsProgress, progress_to
from shoal.rollout import Completion, Question

QUESTIONS = [question(number) for number in range(1, 7)]


def test_a_language_model_tells_of_answered_questions_and_answers_as_before() -> None:
    policy = make_policy()
    told: list[int] = []
    with progress_to(policy, told.append):
        answers = policy.generate(QUESTIONS, 2, 7)
    assert told == sorted(told)
    assert told[0] == 0
    assert told[-1] <= len(QUESTIONS)
    assert policy.on_progress is None
    assert policy.generate(QUESTIONS, 2, 7) == answers


def test_a_language_model_tells_an_answer_while_it_comes() -> None:
    policy, said = make_policy(), list[str]()
    [before] = policy.generate(QUESTIONS[:1], 1, 7)
    policy.on_text = said.append
    assert policy.generate(QUESTIONS[:1], 1, 7) == [before]
    assert said[-1] == before[0].text
    assert len(said) == len(before[0].token_ids or ())


@pytest.mark.parametrize("calls", [1, 5])
def test_a_language_model_can_be_ended_and_answers_again(calls: int) -> None:
    policy = make_policy()
    before = policy.generate(QUESTIONS, 2, 7)
    left = calls

    def on_progress(answered: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Stopped

    with progress_to(policy, on_progress), pytest.raises(Stopped):
        policy.generate(QUESTIONS, 2, 7)
    assert policy.generate(QUESTIONS, 2, 7) == before


class Plain:
    """A policy of one's own that tells nothing."""

    trouble = ""

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        return [() for _ in questions]

    def save(self, folder: object) -> None: ...


def test_a_policy_of_ones_own_need_not_tell() -> None:
    def never(answered: int) -> None:
        raise AssertionError

    plain = Plain()
    assert not isinstance(plain, ReportsProgress)
    with progress_to(plain, never):
        assert plain.generate(QUESTIONS, 1, 0) == [()] * 6
