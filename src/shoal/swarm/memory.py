"""A swarm within one process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from shoal.rewards.scorer import Scorer
from shoal.rollout import Rollout, Scored


class MemorySwarm:
    """Carries rollouts between the nodes of one process, as bytes, as over a network.

    swarm = MemorySwarm(seed=0)
    ada, bob = swarm.join("ada", scorer), swarm.join("bob", scorer)
    ada.share(rollouts)
    bob.receive()
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.inboxes: dict[str, list[bytes]] = {}

    def join(self, node: str, scorer: Scorer, num_generations: int | None = None) -> MemoryLink:
        """The link of a new node, which scores what it receives by `scorer`: the first `num_generations` completions of
        each rollout, or all."""
        self.inboxes[node] = []
        return MemoryLink(self, node, scorer, num_generations)


class MemoryLink:
    """One node's end of a `MemorySwarm`."""

    def __init__(self, swarm: MemorySwarm, node: str, scorer: Scorer, num_generations: int | None) -> None:
        self._node = node
        self._inboxes = swarm.inboxes
        self._scorer = scorer
        self._num_generations = num_generations
        self.series = (swarm.seed, node)

    @property
    def refused(self) -> int:
        return self._scorer.refused

    def share(self, rollouts: Sequence[Rollout]) -> None:
        messages = [rollout.encode() for rollout in rollouts]
        for node, inbox in self._inboxes.items():
            if node != self._node:
                inbox += messages

    def receive(self) -> list[Scored]:
        inbox = self._inboxes[self._node]
        rollouts = [Rollout.decode(message) for message in inbox]
        inbox.clear()
        if self._num_generations is not None:
            rollouts = [rollout.first(self._num_generations) for rollout in rollouts]
        return self._scorer.score(rollouts)

    def save(self, folder: Path) -> None:
        (folder / "swarm.json").write_text(json.dumps({"refused": self.refused}))

    def load(self, folder: Path) -> None:
        self._scorer.refused = json.loads((folder / "swarm.json").read_text())["refused"]
