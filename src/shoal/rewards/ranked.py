"""What people ranked comes back as rollouts to learn from.

A node that is rewarded by rankings alone would learn nothing from its fresh answers: nobody has ranked them yet. Once
somebody has, the question with all its ranked answers is received, as if another node had sent it, and goes the way of
all that is foreign: scored, into the pool, sampled among J.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from shoal.parallel.ranks import ALONE, Ranks
from shoal.protocols import Swarm, Tasks
from shoal.rewards.rankings import Ranked, Rankings
from shoal.rollout import Completion, Question, QuestionId, Rollout, Scored

MAKER = "people"
"""What such rollouts name as their maker: their answers may be of several."""
MOST = 64
"""Ranked questions that are taken in a round; the rest wait for the next."""
FILE = "ranked.json"


class RankedSwarm:
    """A node's place in a swarm, with what people ranked as one more source."""

    def __init__(self, swarm: Swarm, rankings: Sequence[Rankings], tasks: Tasks, ranks: Ranks = ALONE) -> None:
        """`rankings`: none on all ranks but the leader."""
        self.swarm = swarm
        self.rankings = {str(one.path): one for one in rankings}
        self.tasks = tasks
        self.ranks = ranks
        self.seen: dict[str, int] = {}
        """The number of the last ranking of each file that was looked at."""

    @property
    def seed_key(self) -> tuple[str | int, ...]:
        return self.swarm.seed_key

    @property
    def refused(self) -> int:
        return self.swarm.refused

    def share(self, rollouts: Sequence[Rollout]) -> None:
        self.swarm.share(rollouts)

    def receive(self) -> list[Rollout | Scored]:
        ranked = self.ranks.broadcast(
            {path: one.ranked(self.seen.get(path, 0), MOST) for path, one in self.rankings.items()}
        )
        self.seen |= {path: found[-1].number for path, found in ranked.items() if found}
        found = [one for each in ranked.values() for one in each]
        known = [(one, question) for one in found if (question := self._question(one.question))]
        return [*self.swarm.receive(), *(_rollout(one, question) for one, question in known)]

    def _question(self, identity: QuestionId) -> Question | None:
        """The question made again, if it is one of these tasks': people may rank anything."""
        try:
            return self.tasks.question(identity)
        except ValueError:
            return None

    def save(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(self.seen))
        self.swarm.save(folder)

    def load(self, folder: Path) -> None:
        file = folder / FILE
        if file.exists():  # a checkpoint of a run without rankings has none
            self.seen = json.loads(file.read_text())
        self.swarm.load(folder)


def _rollout(ranked: Ranked, question: Question) -> Rollout:
    completions = tuple(map(Completion.of, ranked.answers))
    return Rollout(question.id, question.hash, completions, MAKER, ranked.number)
