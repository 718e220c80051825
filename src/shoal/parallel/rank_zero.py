"""What only the leader of several ranks does, and tells the others: ask the world, and score what comes back.

The calls are meetings of all ranks (see `ranks`), so each of these stands in the leader's place on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shoal.parallel.ranks import Ranks
from shoal.protocols import Policy, Swarm, Verifier
from shoal.rollout import Completion, Question, QuestionId, Rollout, Scored


class LedVerifier:
    """The leader's verifier: it alone scores."""

    def __init__(self, verifier: Verifier, ranks: Ranks) -> None:
        self.verifier = verifier
        self.ranks = ranks

    def score(self, items: Sequence[tuple[QuestionId, Sequence[str]]]) -> list[list[float]]:
        return self.ranks.agreed(self.verifier.score(items) if self.ranks.leader else [])

    @property
    def trouble(self) -> str:
        return self.verifier.trouble


class LedPolicy:
    """The leader's policy, for one that asks somebody: an endpoint hears each question once, not from every rank."""

    def __init__(self, policy: Policy, ranks: Ranks) -> None:
        self.policy = policy
        self.ranks = ranks

    @property
    def trouble(self) -> str:
        return self.policy.trouble

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        answers = self.policy.generate(questions, num_generations, seed) if self.ranks.leader else []
        return self.ranks.agreed(answers)

    def save(self, folder: Path) -> None:
        if self.ranks.leader:
            self.policy.save(folder)


class LedSwarm:
    """The leader's place in a network, which has the whole group of ranks as one node.

    What it admits it must score by a verifier of its own, not by a `LedVerifier`: nobody else is there to listen.
    """

    def __init__(self, swarm: Swarm | None, ranks: Ranks) -> None:
        """`swarm`: None on all ranks but the leader."""
        self.swarm = swarm
        self.ranks = ranks
        self.series: tuple[str | int, ...] = ranks.agreed(swarm.series if swarm else ())
        self.refused = 0

    def share(self, rollouts: Sequence[Rollout]) -> None:
        if self.swarm:
            self.swarm.share(rollouts)

    def receive(self) -> list[Scored]:
        told: tuple[list[Scored], int] = ([], 0)
        if self.swarm:
            received = self.swarm.receive()
            told = (received, self.swarm.refused)
        received, self.refused = self.ranks.agreed(told)
        return received

    def save(self, folder: Path) -> None:
        if self.swarm:
            self.swarm.save(folder)

    def load(self, folder: Path) -> None:
        if self.swarm:
            self.swarm.load(folder)
            self.refused = self.swarm.refused
        self.refused = self.ranks.agreed(self.refused)
