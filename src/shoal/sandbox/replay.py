"""Conversations with environments, held again: nobody's word is taken for what an environment answered.

[result] = replayer.replay([(question.id, ("40", "44"))])     # result.observations: ("higher", "right")
refusal(question, ("40", "44"), False, result)                # "": the conversation is as it has to be
replayed(rollout, question, replayer)                         # the rollout with what the environment answered
"""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from shoal.errors import UserError
from shoal.rollout import Answer, FinishReason, Question, QuestionId, Rollout
from shoal.sandbox.pipes import Result


@runtime_checkable
class Replayer(Protocol):
    """Has environments answer, in a process that they cannot hold up."""

    failures: Counter[str]
    """Answers without a score, by reason."""

    def replay(self, conversations: Sequence[tuple[QuestionId, Answer]], scored: bool = True) -> list[Result]:
        """How each conversation goes. Not `scored`: it goes on."""
        ...


def attach_environments(policy: object, replayer: object) -> None:
    """`replayer` answers in the conversations of `policy`, if both can and nothing else does."""
    if isinstance(replayer, Replayer) and getattr(policy, "replayer", replayer) is None:
        policy.replayer = replayer  # type: ignore[attr-defined]


def refusal(question: Question, answer: Answer, cut: bool, result: Result) -> str:
    """Why a conversation is refused; empty if it is not. "replay": it goes on after its end, or ends before it without
    being `cut`. Otherwise the environment failed, for this reason."""
    if result.failure:
        return result.failure
    turns = 1 if isinstance(answer, str) else len(answer)
    whole = result.ended or cut or turns == question.turns
    return "" if len(result.observations) == turns <= question.turns and whole else "replay"


def replayed(rollout: Rollout, question: Question, replayer: Replayer) -> Rollout | None:
    """The rollout with what the environment answers in each of its conversations. None if it is refused: the reason is
    counted. What the environment answered before, while own conversations were held, it has to answer again."""
    results = replayer.replay([(question.id, completion.answer) for completion in rollout.completions])
    for completion, result in zip(rollout.completions, results, strict=True):
        if result.failure:
            return None  # counted by the replayer
        reason = refusal(question, completion.answer, completion.finish_reason == FinishReason.length, result)
        before = completion.observations
        if not reason and before != result.observations[: len(before)]:
            reason = "not deterministic"
        if reason:
            replayer.failures[reason] += 1
            return None
    return with_observations(rollout, [result.observations for result in results])


def with_observations(rollout: Rollout, observations: Sequence[tuple[str, ...]]) -> Rollout:
    """The rollout with what the environment answered in each conversation."""
    pairs = zip(rollout.completions, observations, strict=True)
    completions = tuple(msgspec.structs.replace(completion, observations=said) for completion, said in pairs)
    return msgspec.structs.replace(rollout, completions=completions)


def refuse_conversations(questions: Sequence[Question], who: str) -> None:
    """Raises `UserError` if any of `questions` answers back, for a policy that holds no conversations."""
    for question in questions:
        if question.turns > 1:
            raise UserError(f"task {question.id.task!r} answers back, which {who} cannot do: take other tasks")
