"""Stand-ins for objects that only rank zero has: it calls them and broadcasts the result.

Their methods are collective calls (see `ranks`).
"""

from collections.abc import Sequence
from pathlib import Path

from shoal.parallel.ranks import Ranks
from shoal.protocols import Grader, Swarm
from shoal.rollout import Answer, QuestionId, Rollout, Scored


class RankZeroVerifier:
    """Rank zero's verifier: only it scores."""

    def __init__(self, verifier: Grader, ranks: Ranks) -> None:
        self.verifier = verifier
        self.ranks = ranks

    def score(self, items: Sequence[tuple[QuestionId, Sequence[Answer]]]) -> list[list[float]]:
        return self.ranks.broadcast(self.verifier.score(items) if self.ranks.is_zero else [])

    @property
    def trouble(self) -> str:
        return self.verifier.trouble


class RankZeroSwarm:
    """Rank zero's place in a network, where all ranks together are one node.

    It must score what it admits with a verifier of its own, not with a `RankZeroVerifier`: the other ranks do not take
    part.
    """

    def __init__(self, swarm: Swarm | None, ranks: Ranks) -> None:
        """`swarm`: None on all ranks but rank zero."""
        self.swarm = swarm
        self.ranks = ranks
        self.seed_key: tuple[str | int, ...] = ranks.broadcast(swarm.seed_key if swarm else ())
        self.refused = 0

    def share(self, rollouts: Sequence[Rollout]) -> None:
        if self.swarm:
            self.swarm.share(rollouts)

    def receive(self) -> list[Rollout | Scored]:
        told: tuple[list[Rollout | Scored], int] = ([], 0)
        if self.swarm:
            told = (list(self.swarm.receive()), self.swarm.refused)
        received, self.refused = self.ranks.broadcast(told)
        return received

    def save(self, folder: Path) -> None:
        if self.swarm:
            self.swarm.save(folder)

    def load(self, folder: Path) -> None:
        if self.swarm:
            self.swarm.load(folder)
            self.refused = self.swarm.refused
        self.refused = self.ranks.broadcast(self.refused)
