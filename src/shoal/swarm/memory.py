"""A swarm within one process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from shoal.rewards.scorer import Scorer
from shoal.rollout import Rollout, Scored


class MemorySwarm:
    """Carries rollouts between the nodes of one process, as the same bytes that would cross a network."""

    def __init__(self, seed: int = 0, share_logprobs: bool = False) -> None:
        self.seed = seed
        self.share_logprobs = share_logprobs
        self._inboxes: dict[str, list[bytes]] = {}

    def join(self, node: str, scorer: Scorer, num_generations: int | None = None) -> MemoryLink:
        """A place in the swarm for `node`, which scores what it receives by `scorer`: of each rollout the first
        `num_generations` completions, or all."""
        self._inboxes[node] = []
        return MemoryLink(node, self.seed, self._inboxes, scorer, self.share_logprobs, num_generations)


class MemoryLink:
    """One node's end of a `MemorySwarm`."""

    def __init__(
        self,
        node: str,
        seed: int,
        inboxes: dict[str, list[bytes]],
        scorer: Scorer,
        share_logprobs: bool,
        num_generations: int | None,
    ) -> None:
        self._node = node
        self._inboxes = inboxes
        self._scorer = scorer
        self._share_logprobs = share_logprobs
        self._num_generations = num_generations
        self.series = (seed, node)

    @property
    def refused(self) -> int:
        return self._scorer.refused

    def share(self, rollouts: Sequence[Rollout]) -> None:
        messages = [rollout.encode(self._share_logprobs) for rollout in rollouts]
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
