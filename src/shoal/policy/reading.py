"""What others can make a model read, in its own tokens.

Peers and judges choose questions, visitors of a page write them, and nobody has looked at every row of a data set. A
model with a long context reads one such question for minutes. So it may be four times as long as a node's own ones.

    is_too_much(policy, question, own=[scored.question for scored in local])
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from shoal.rollout import Question

LONGER, LEAST, UNCOMPARED = 4, 1024, 4096
"""How much longer a question may be; how many tokens in any case; and how many where there is nothing to compare."""


@runtime_checkable
class ReadsTokens(Protocol):
    """A policy that knows what a question is to it."""

    def prompt_ids(self, question: Question) -> list[int]: ...


def tokens_of(policy: object, question: Question) -> int:
    """The length of a question. Where a policy has no tokens here (an endpoint) four characters count as one."""
    return len(policy.prompt_ids(question)) if isinstance(policy, ReadsTokens) else len(question.text) // 4


def most_tokens(lengths: Sequence[int], least: int = LEAST) -> int:
    """The most tokens of a question beside own ones of these lengths."""
    return max(least, LONGER * max(lengths)) if lengths else UNCOMPARED


def is_too_much(policy: object, question: Question, own: Sequence[Question] = ()) -> bool:
    """Whether a question of others is too long for this node, whose `own` are these."""
    return tokens_of(policy, question) > most_tokens([tokens_of(policy, one) for one in own])
