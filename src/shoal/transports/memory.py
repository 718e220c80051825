"""A swarm within one process, whose nodes trust each other. Those that do not share through the place `memory://`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shoal.rollout import Rollout


class MemorySwarm:
    """Carries rollouts between the nodes of one process, as the same bytes that would cross a network.

        swarm = MemorySwarm(seed=0)
        ada, bob = swarm.join("ada"), swarm.join("bob")
        ada.share([rollout])
        [received] = bob.receive()

    `seed` is that of the nodes' draws.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._inboxes: dict[str, list[bytes]] = {}

    def join(self, node: str, num_generations: int | None = None) -> MemoryLink:
        """A place in the swarm for `node`, which takes of each rollout the first `num_generations` completions, or
        all."""
        self._inboxes[node] = []
        return MemoryLink(node, self.seed, self._inboxes, num_generations)


class MemoryLink:
    """One node's end of a `MemorySwarm`. It has no state that outlives a round."""

    refused = 0
    """Nothing: the node's scorer refuses what is not valid."""

    def __init__(self, node: str, seed: int, inboxes: dict[str, list[bytes]], num_generations: int | None) -> None:
        self._node = node
        self._inboxes = inboxes
        self._num_generations = num_generations
        self.seed_key = (seed, node)

    def share(self, rollouts: Sequence[Rollout]) -> None:
        messages = [rollout.encode() for rollout in rollouts]
        for node, inbox in self._inboxes.items():
            if node != self._node:
                inbox += messages

    def receive(self) -> list[Rollout]:
        inbox = self._inboxes[self._node]
        rollouts = [Rollout.decode(message) for message in inbox]
        inbox.clear()
        return [r if self._num_generations is None else r.first(self._num_generations) for r in rollouts]

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...
