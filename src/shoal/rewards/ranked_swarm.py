"""Brings ranked answers back as rollouts to learn from.

A node that is rewarded by rankings alone would learn nothing from its fresh answers, since nobody has ranked them yet.
Once somebody has, the node receives the question with all its ranked answers as if another node had sent them. They are
then scored, put into the pool and sampled among J like all foreign rollouts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from shoal.parallel.ranks import ALONE, Ranks
from shoal.protocols import Swarm, TaskSource
from shoal.rewards.rankings import Ranked, Rankings
from shoal.rollout import Completion, Rollout, Scored
from shoal.tasks.draw import InvalidRollout, validate

MAKER = "people"
"""The maker that such rollouts name; their answers may come from several."""
MOST = 64
"""Ranked questions that are taken in a round; the rest wait for the next."""
FILE = "ranked.json"


class RankedSwarm:
    """A node's place in a swarm, with people's rankings as one more source of rollouts."""

    def __init__(self, swarm: Swarm, rankings: Sequence[Rankings], tasks: TaskSource, ranks: Ranks = ALONE) -> None:
        """`rankings`: empty on all ranks but rank zero."""
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
        new = {path: one.ranked(self.seen.get(path, 0), MOST) for path, one in self.rankings.items()}
        ranked = self.ranks.broadcast(new)
        self.seen |= {path: found[-1].number for path, found in ranked.items() if found}
        made = (self._rollout(one) for found in ranked.values() for one in found)
        return [*self.swarm.receive(), *(rollout for rollout in made if rollout is not None)]

    def _rollout(self, ranked: Ranked) -> Rollout | None:
        """None if its question is held out or not one of these tasks': people may rank anything."""
        try:
            question = validate(self.tasks, ranked.question, None, len(ranked.answers))
        except InvalidRollout:
            return None
        completions = tuple(map(Completion.of, ranked.answers))
        return Rollout(question.id, question.hash, completions, MAKER, ranked.number)

    def save(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(self.seen))
        self.swarm.save(folder)

    def load(self, folder: Path) -> None:
        file = folder / FILE
        if file.exists():  # a checkpoint of a run without rankings has none
            self.seen = json.loads(file.read_text())
        self.swarm.load(folder)
