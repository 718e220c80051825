"""Partial credit that fades out: steps to begin with, and in the end the right answer alone.

    scorer = FadingScorer(tasks, verifier, node="ada", rounds=50)

In round 1 of 50 a partial score counts in full, in round 26 half, after round 50 nothing. A full score is always 1.
"""

from __future__ import annotations

import msgspec

from shoal.protocols import Grader, TaskSource
from shoal.rewards.scorer import Scorer
from shoal.rollout import Scored
from shoal.sandbox.replay import Replayer


class FadingScorer(Scorer):
    """Own and others' rollouts get the credit of the round that the node is in. So others' rollouts that wait in the
    pool keep that of the round in which they came."""

    def __init__(
        self, tasks: TaskSource, verifier: Grader, node: str, rounds: int, replayer: Replayer | None = None
    ) -> None:
        """`node`: whose rollouts tell the round; a node scores its own first. `rounds`: until nothing is left."""
        super().__init__(tasks, verifier, replayer)
        self.node = node
        self.rounds = rounds
        self.round = 1

    def credited(self, scored: list[Scored]) -> list[Scored]:
        self.round = max([self.round, *(s.rollout.round for s in scored if s.rollout.node == self.node)])
        weight = max(0.0, 1 - (self.round - 1) / self.rounds)
        return [faded(one, weight) for one in scored]


def faded(scored: Scored, weight: float) -> Scored:
    """The rollout with its partial scores times `weight`."""
    rewards = tuple(reward if reward >= 1 else reward * weight for reward in scored.rewards)
    return msgspec.structs.replace(scored, rewards=rewards)
