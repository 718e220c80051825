"""Policies that tell how far they have come: what they tell, that it changes nothing, and that it can end them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from fakes import question
from tiny import make_policy

from shoal.errors import Stopped
from shoal.policy.progress import told_of
from shoal.protocols import TellsProgress, heard
from shoal.rollout import Completion, Question

QUESTIONS = [question(number) for number in range(1, 7)]


def test_a_language_model_tells_of_answered_questions_and_answers_as_before() -> None:
    policy = make_policy()
    told: list[int] = []
    with heard(policy, told.append):
        answers = policy.generate(QUESTIONS, 2, 7)
    assert told == sorted(told)
    assert told[0] == 0
    assert told[-1] <= len(QUESTIONS)
    assert policy.hear is None
    assert policy.generate(QUESTIONS, 2, 7) == answers


@pytest.mark.parametrize("calls", [1, 5])
def test_a_language_model_can_be_ended_and_answers_again(calls: int) -> None:
    policy = make_policy()
    before = policy.generate(QUESTIONS, 2, 7)
    left = calls

    def hear(answered: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Stopped

    with heard(policy, hear), pytest.raises(Stopped):
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
    assert not isinstance(plain, TellsProgress)
    with heard(plain, never):
        assert plain.generate(QUESTIONS, 1, 0) == [()] * 6


def test_a_server_is_looked_at_while_it_answers() -> None:
    ended = []

    async def slow() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(True)

    def hear(answered: int) -> None:
        assert answered == 3
        raise Stopped

    with pytest.raises(Stopped):
        asyncio.run(told_of(slow(), hear, lambda: 3))
    assert ended == [True]

    async def quick() -> int:
        return 5

    assert asyncio.run(told_of(quick(), hear, lambda: 3)) == 5
    assert asyncio.run(told_of(quick(), None, lambda: 3)) == 5
